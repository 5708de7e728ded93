package cli

import (
	"context"
	"errors"
	"io"
)

// errInterrupted ends a command that was stopped, by Ctrl-C say, before its work was done.
var errInterrupted = errors.New("interrupted")

// interruptible reads until its context ends, also when the reader behind it waits for a terminal or a pipe. Nothing can
// end such a wait: the goroutine of the last read stays until the input says something or the process ends.
type interruptible struct {
	ctx context.Context //nolint:containedctx // that of the command, which is what a read is part of
	r   io.Reader

	buf   []byte
	ready chan readResult // of the read that is under way, nil = none
	data  []byte          // read and not handed out
	err   error           // behind data
}

type readResult struct {
	n   int
	err error
}

func newInterruptible(ctx context.Context, r io.Reader) *interruptible {
	return &interruptible{ctx: ctx, r: r, buf: make([]byte, 64<<10)}
}

// Read is io.Reader; it gives errInterrupted when the context has ended.
func (i *interruptible) Read(p []byte) (int, error) {
	for {
		switch {
		case i.ctx.Err() != nil:
			return 0, errInterrupted
		case len(i.data) > 0:
			n := copy(p, i.data)
			i.data = i.data[n:]
			return n, nil
		case i.err != nil:
			return 0, i.err
		}
		if i.ready == nil {
			i.ready = make(chan readResult, 1)
			go func(ready chan<- readResult) {
				n, err := i.r.Read(i.buf)
				ready <- readResult{n, err}
			}(i.ready)
		}
		select {
		case res := <-i.ready:
			i.ready = nil
			i.data, i.err = i.buf[:res.n], res.err
		case <-i.ctx.Done():
		}
	}
}
