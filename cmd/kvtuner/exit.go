package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes, as exitCodesHelp documents them.
const (
	exitFailure  = 1
	exitUsage    = 2
	exitNotFound = 3
	exitNotReady = 4
	exitRefused  = 5
	exitWarnings = 6
	exitErrors   = 7
)

const exitCodesHelp = `Exit codes:
  0  success
  1  failure: what was asked could not be done
  2  wrong usage or configuration: the same command will fail again
  3  not found: no such decision, pool or history
  4  not ready: a pool is not being tuned (status only)
  5  refused: the daemon does not let you, or the pool's state does not allow it
     (pause, resume, revert, approve)
  6  check found warnings
  7  check found errors`

// exitError is an error that ends the process with a code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// usage marks err as the caller's: exit code 2.
func usage(err error) error { return &exitError{exitUsage, err} }

// notFound marks err with exit code 3, notReady with 4.
func notFound(err error) error { return &exitError{exitNotFound, err} }

func notReady(err error) error { return &exitError{exitNotReady, err} }

// maxErrorLine is how many characters of a problem are shown: it may repeat an
// argument.
const maxErrorLine = 2000

// report writes err as one line, or one a problem when there are several, and
// returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for i, line := range lines {
		lines[i] = clip(printable(line), maxErrorLine)
	}
	fmt.Fprintln(stderr, "kvtuner: "+strings.Join(lines, "\n  "))
	var coded *exitError
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitFailure
}

// markHelp tells why help could not be written to stdout: cobra would not say.
func markHelp(root *cobra.Command, stdout io.Writer) *error {
	failed := new(error)
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		var text bytes.Buffer
		root.SetOut(&text)
		help(c, args)
		root.SetOut(stdout)
		_, *failed = stdout.Write(text.Bytes())
	})
	return failed
}

// isWriteError tells whether it is the output that failed, such as of --version on a
// full disk, and not the command line.
func isWriteError(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e) && e.Op == "write"
}

// markStart tells whether a command began its work: an error before that is
// cobra's, about flags and arguments.
func markStart(c *cobra.Command) *bool {
	started := new(bool)
	var mark func(*cobra.Command)
	mark = func(c *cobra.Command) {
		if run := c.RunE; run != nil {
			c.RunE = func(cmd *cobra.Command, args []string) error {
				*started = true
				return run(cmd, args)
			}
		}
		for _, sub := range c.Commands() {
			mark(sub)
		}
	}
	mark(c)
	return started
}
