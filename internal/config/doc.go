// Package config builds the configuration of a node: embedded defaults, then a
// TOML file, then IGGY_* variables, then what the command line set. Later wins.
//
// Keys keep the names of the reference's configuration, in its newer layout
// (`path`, `[logging]`, …); the older `[system.*]` names are accepted. Keys of
// the reference's own engine that mean nothing here are accepted and reported
// once; keys that were removed refuse the start with a hint; unknown keys are
// reported with their line and the nearest known name.
//
// Invariants:
//   - Load opens nothing but the files it reads and changes nothing; when it
//     returns an error, nothing of the node was started.
//   - Every problem names the key, what was given and what the key takes.
//   - A secret's value never reaches a log line, an error text or the written
//     current_config.toml.
//   - Where each value came from is kept: Config.Origin.
package config
