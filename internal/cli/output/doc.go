// Package output prints the results of commands, each in one of three forms: a bordered table for people, a list
// of fields separated by "|" for scripts, or one JSON document for programs.
//
// A command hands over the same result once for people (header and rows) and once for programs (a value to
// encode); the printer picks. Results go to one writer only; diagnostics are none of its business.
package output
