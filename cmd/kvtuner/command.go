package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/web"
)

// order is what a command that changes something has in common with its kind.
type order struct {
	cmd    *cobra.Command
	daemon *endpoint
	pool   string
	body   web.CommandRequest
	output *choice
}

const operatorsHelp = `

The daemon must know you: by a token (--token-file) that its setting
web.tokenFile lists, or by a certificate (--cert, --key) that
web.tls.clientCAFile has signed. The decision's record names you.`

func newOrder(cmd *cobra.Command) *order {
	cmd.Long += operatorsHelp
	cmd.Args = cobra.NoArgs
	o := &order{cmd: cmd, daemon: addEndpoint(cmd), output: newChoice("text", "json")}
	o.daemon.addCredentials(cmd)
	f := cmd.Flags()
	f.StringVar(&o.pool, "pool", "", "the pool; not needed if the daemon has one only")
	f.StringVar(&o.body.Reason, "reason", "", "why, for the record")
	f.StringVar(&o.body.By, "by", loginName(), "who you are, for the record, beside the name that your token stands for")
	f.Lookup("by").DefValue = "" // the reference must not depend on who writes it
	f.Var(o.output, "output", "form of the output")
	completePools(cmd, o.daemon)
	return o
}

func loginName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

func newPauseCommand() *cobra.Command {
	o := newOrder(&cobra.Command{
		Use:   "pause",
		Short: "Stop tuning a pool; what is in force stays",
		Long: `Stop tuning a pool. The incumbent stays in force; a trial is withdrawn at once,
and nothing is tried, shed or rolled back until the pause ends. It survives a
restart of the daemon. Another pause replaces it.`,
		Example: `  kvtuner pause --for 2h --reason "deploying vLLM 0.32"
  kvtuner pause --pool default --address https://kvtuner.example:9095 --token-file ~/.kvtuner-token`,
	})
	o.cmd.Flags().StringVar(&o.body.For, "for", "", "end it after this long, such as 90m or 2d; without it, until resumed")
	o.cmd.RunE = o.sends(tuner.Pause)
	return o.cmd
}

func newResumeCommand() *cobra.Command {
	o := newOrder(&cobra.Command{
		Use:     "resume",
		Short:   "End a pause",
		Long:    "End a pause: the pool is tuned again from its next sample on.",
		Example: "  kvtuner resume --pool default",
	})
	o.cmd.RunE = o.sends(tuner.Resume)
	return o.cmd
}

func newRevertCommand() *cobra.Command {
	o := newOrder(&cobra.Command{
		Use:   "revert",
		Short: "Go back to earlier parameters",
		Long: `Go back to earlier parameters, within bounds. A trial is withdrawn; what was left
is not proposed again for a while, and tuning waits for guard.cooldown. To stay
there for good, pause first.

--to is known-good, the incumbent before the last move that stands; initial, the
parameters of the configuration; or the ID of a decision (kvtuner history), for
what that left in force.`,
		Example: `  kvtuner revert --reason "p99 has doubled since 14:00"
  kvtuner revert --to 20261130T161151Z-0007`,
	})
	o.cmd.Flags().StringVar(&o.body.To, "to", string(tuner.ToKnownGood), "known-good, initial or the `ID` of a decision")
	o.cmd.RunE = o.sends(tuner.Revert)
	return o.cmd
}

func newApproveCommand() *cobra.Command {
	var reject bool
	o := newOrder(&cobra.Command{
		Use:   "approve",
		Short: "Let a proposed candidate be tried, or reject it",
		Long: `Let the candidate that a pool in mode propose asks about be tried: as a trial,
guarded like any other. "kvtuner status" shows what waits and until when, and
"kvtuner explain" its evidence. A rejected candidate is not proposed again for a
while.`,
		Example: `  kvtuner approve --proposal p20261130T161145Z
  kvtuner approve --reject --reason "not before the launch"`,
	})
	o.cmd.Flags().StringVar(&o.body.Proposal, "proposal", "", "`ID` of the proposal; without it, the one that waits")
	o.cmd.Flags().BoolVar(&reject, "reject", false, "reject it instead")
	o.cmd.RunE = func(cmd *cobra.Command, args []string) error {
		verb := tuner.Approve
		if reject {
			verb = tuner.Reject
		}
		return o.sends(verb)(cmd, args)
	}
	return o.cmd
}

func (o *order) sends(v tuner.Verb) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := o.check(v); err != nil {
			return usage(fmt.Errorf("--%w", err)) // which names the flag first
		}
		c, err := newClient(cmd.Context(), *o.daemon)
		if err != nil {
			return err
		}
		if err := o.fill(cmd.Context(), c, v); err != nil {
			return err
		}
		r, err := c.command(cmd.Context(), o.pool, v, o.body)
		if err != nil {
			return err
		}
		return o.tell(cmd.OutOrStdout(), r)
	}
}

// check what the daemon would refuse, before it is asked.
func (o *order) check(v tuner.Verb) error {
	c := tuner.Command{Verb: v, Actor: "operator", Reason: strings.TrimSpace(o.body.Reason), Target: tuner.ToKnownGood, Proposal: "waiting"}
	if f := o.cmd.Flags().Lookup("for"); f != nil && f.Changed {
		var err error
		if c.For, err = web.ParseFor(o.body.For); err != nil {
			return err
		}
	}
	return c.Validate()
}

// fill in the pool, if there is one only, and the proposal that waits.
func (o *order) fill(ctx context.Context, c *client, v tuner.Verb) error {
	answers := v == tuner.Approve || v == tuner.Reject
	if o.pool != "" && (!answers || o.body.Proposal != "") {
		return nil
	}
	s, err := c.status(ctx, o.pool)
	if err != nil {
		return err
	}
	if len(s.Pools) != 1 {
		return usage(fmt.Errorf("--pool: the daemon tunes %d pools; name one of %s", len(s.Pools), strings.Join(poolNames(s), ", ")))
	}
	p := s.Pools[0]
	o.pool = p.Pool
	if !answers || o.body.Proposal != "" {
		return nil
	}
	if p.Proposal == nil {
		return &exitError{exitRefused, fmt.Errorf("no proposal waits for an answer in pool %s", p.Pool)}
	}
	o.body.Proposal = p.Proposal.ID
	return nil
}

func poolNames(s web.StatusResponse) []string {
	names := make([]string, len(s.Pools))
	for i, p := range s.Pools {
		names[i] = p.Pool
	}
	return names
}

// tell what became of it. What is not done yet is a failure for a script.
func (o *order) tell(w io.Writer, r tuner.Receipt) error {
	var err error
	if o.output.value == "json" {
		err = writeJSON(w, r)
	} else {
		err = writeText(w, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %s\n", r.Decision.ID, oneLine(r.Decision.Reason))
		})
	}
	if err != nil || r.Pending == "" {
		return err
	}
	return errors.New("accepted, but not done yet; the daemon goes on trying: " + r.Pending)
}
