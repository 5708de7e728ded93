package bench

type Plan struct{}
