package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

const referenceFile = "../../docs/cli.md"

// TestReferenceIsCurrent compares docs/cli.md with the commands; with -update it
// writes the file.
func TestReferenceIsCurrent(t *testing.T) {
	want := reference()
	if *update {
		if err := os.WriteFile(referenceFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/cli.md is out of date; go test ./cmd/kvtuner -run TestReference -update (-commands +file):\n%s", diff)
	}
}

func TestEveryCommandIsDocumented(t *testing.T) {
	for _, c := range commands(newRootCommand()) {
		if c.Short == "" || c.HasParent() && c.Parent().Name() == "kvtuner" && c.Example == "" && c.Name() != "completion" {
			t.Errorf("%s lacks a summary or an example", c.CommandPath())
		}
	}
}

// The reference has every exit code there is, and no other.
func TestExitCodesAreDocumented(t *testing.T) {
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^  (\d+)  \S`).FindAllStringSubmatch(string(reference()), -1) {
		got = append(got, m[1])
	}
	var want []string
	for _, code := range []int{0, exitFailure, exitUsage, exitNotFound, exitNotReady, exitRefused, exitWarnings, exitErrors} {
		want = append(want, strconv.Itoa(code))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exit codes (-there are +documented):\n%s", diff)
	}
}

// commands lists a command and all below it, as the help shows them.
func commands(c *cobra.Command) []*cobra.Command {
	if !c.HasParent() {
		c.InitDefaultCompletionCmd()
	}
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

func reference() []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, "# Command line\n\nWritten from the commands' own help by `go test ./cmd/kvtuner -run TestReference -update`.\n")
	for _, c := range commands(newRootCommand()) {
		describe(&b, c)
	}
	return b.Bytes()
}

func describe(b *bytes.Buffer, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n    %s\n\n", c.CommandPath(), c.UseLine())
	block(b, "", long)
	block(b, "Examples:\n", strings.TrimRight(c.Example, "\n"))
	block(b, "Flags:\n", strings.TrimRight(c.LocalFlags().FlagUsages(), "\n"))
}

// block is preformatted, as a terminal shows it.
func block(b *bytes.Buffer, title, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(b, "```text\n%s%s\n```\n", title, text)
}
