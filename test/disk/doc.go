// Package disk holds tests of a node whose disk is full or fails, on real file systems.
package disk
