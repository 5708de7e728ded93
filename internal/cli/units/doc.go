// Package units reads and writes the sizes, durations and times of the command line: decimal sizes such as
// "1.00 KB", durations in words such as "1day 2h", and the words "unlimited" and "server_default" that stand
// for the two ends of a limit.
//
// Everything here is a pure function of its arguments.
package units
