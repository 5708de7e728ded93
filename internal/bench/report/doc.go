// Package report writes the HTML report of a benchmark: one file, tables and plots as inline SVG, no script and
// nothing loaded from elsewhere, readable in light and dark.
package report
