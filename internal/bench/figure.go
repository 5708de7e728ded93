package bench

import (
	"fmt"
	"math"
)

// Figure is one number that is held against a target.
type Figure struct {
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit,omitempty"`
	Target string  `json:"target,omitempty"`
	Met    *bool   `json:"met"` // nil = there is no target
}

// newFigure holds a value against a least, or a most; 0 = there is none. Two decimals count: what a table shows as the
// target has met it.
func newFigure(what string, value float64, unit string, least, most float64) Figure {
	f := Figure{What: what, Value: value, Unit: unit}
	rounded := math.Round(value*100) / 100
	switch {
	case least > 0:
		met := rounded >= least
		f.Target, f.Met = fmt.Sprintf("≥ %g", least), &met
	case most > 0:
		met := rounded <= most
		f.Target, f.Met = fmt.Sprintf("≤ %g", most), &met
	}
	return f
}

// atMost holds a value against a most that may be 0.
func atMost(what string, value float64, unit string, most float64) Figure {
	met := value <= most
	return Figure{What: what, Value: value, Unit: unit, Target: fmt.Sprintf("≤ %g", most), Met: &met}
}

// Figures lays figures out for people.
func Figures(fs []Figure) Table {
	t := Table{Header: []string{"What", "Value", "Target", ""}}
	for _, f := range fs {
		met := ""
		if f.Met != nil {
			met = map[bool]string{true: "met", false: "missed"}[*f.Met]
		}
		t.Rows = append(t.Rows, []string{f.What, f.text(), f.Target, met})
	}
	return t
}

func (f Figure) text() string {
	v := fmt.Sprintf("%.2f", f.Value)
	if f.Value == math.Trunc(f.Value) && math.Abs(f.Value) < 1e15 {
		v = fmt.Sprintf("%.0f", f.Value)
	}
	if f.Unit != "" {
		v += " " + f.Unit
	}
	return v
}
