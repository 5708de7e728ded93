package server

import "github.com/whippetmq/whippet/internal/config"

// Config is the configuration of a node. Its fields are named after the keys of
// the configuration file.
type Config = config.Config

// LoadOptions is what the command line gives to LoadConfig.
type LoadOptions = config.Options

// LoadReport is what LoadConfig wants logged, once there is a log.
type LoadReport = config.Report

// DefaultConfig is the configuration of a node that was given nothing.
func DefaultConfig() *Config { return config.Default() }

// LoadConfig reads the defaults, the configuration file and the IGGY_* variables,
// in this order, later wins. The error names each key that cannot be used, what
// was given and what it takes.
func LoadConfig(o LoadOptions) (*Config, *LoadReport, error) { return config.Load(o) }
