// Command kvtuner tunes, online, when vLLM restores KV cache from outside the
// GPU instead of recomputing a prefix.
//
// It is where the data path metrics -> tuner -> store -> plugin -> request is
// put together: the daemon (run) gives each pool its Prometheus client, its
// document store and its history, and the operator's commands show what the
// daemon decided and why. Nothing here knows how parameters are found; that is
// package tuner.
package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default action is back: a second one kills.
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	started, unhelped := markStart(root), markHelp(root, stdout)
	err := root.ExecuteContext(ctx)
	if err != nil && !*started && !isWriteError(err) {
		err = usage(err)
	}
	return report(stderr, cmp.Or(err, *unhelped))
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kvtuner",
		Short: "Tune when vLLM restores KV cache instead of recomputing a prefix",
		Long: `kvtuner tunes, online, when vLLM restores KV cache from outside the GPU instead
of recomputing a prefix. "kvtuner run" is the daemon; "status", "history" and
"explain" ask it what it did and why; "pause", "resume", "revert" and "approve"
tell it what to do.

` + exitCodesHelp,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       readBuild().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(readBuild().String() + "\n")
	root.SetFlagErrorFunc(suggestFlag)
	root.AddCommand(
		newRunCommand(),
		newReplayCommand(),
		newCheckCommand(),
		newStatusCommand(),
		newHistoryCommand(),
		newExplainCommand(),
		newPauseCommand(),
		newResumeCommand(),
		newRevertCommand(),
		newApproveCommand(),
		newDemoCommand(),
		newBenchCommand(),
		newChaosCommand(),
		newCalibrateCommand(),
		newVersionCommand(),
	)
	strict(root)
	return root
}
