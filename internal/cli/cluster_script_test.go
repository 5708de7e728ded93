package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// nodesOf reads a ready file: nodes FILE. It sets, for each node i CONNECTi, PORTi, PIDi and RESTARTi.
func nodesOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: nodes file")
	}
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	var doc readyDocument
	ts.Check(json.Unmarshal(b, &doc))
	for i, n := range doc.Nodes {
		_, port, err := net.SplitHostPort(n.TCP)
		ts.Check(err)
		ts.Setenv(fmt.Sprintf("PORT%d", i), port)
		ts.Setenv(fmt.Sprintf("PID%d", i), fmt.Sprint(n.PID))
		ts.Setenv(fmt.Sprintf("RESTART%d", i), n.Restart)
		ts.Setenv(fmt.Sprintf("CONNECT%d", i), "iggy://iggy:iggy@"+n.TCP)
	}
}

// eventually repeats a command until its output matches: eventually REGEX program [args...].
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually regex program [args...]")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := ts.Exec(args[1], args[2:]...)
		if out := ts.ReadFile("stdout"); err == nil && want.MatchString(out) {
			return
		} else if time.Now().After(deadline) {
			ts.Fatalf("%v: no %q in its output (%v):\n%s%s", args[1:], args[0], err, out, ts.ReadFile("stderr"))
		}
		<-tick.C
	}
}
