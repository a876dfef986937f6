// Command epp is the Endpoint Picker of llm-d-router with the plugin
// "selective-kv-policy" built in. It takes the flags and the
// EndpointPickerConfig of the stock one; the plugin is experimental there and
// needs --allow-experimental-plugins.
package main

import (
	"os"

	"github.com/llm-d/llm-d-router/cmd/epp/runner"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kvtuner/kvtuner/plugin/llmd"
)

func main() {
	llmd.Register()
	if err := runner.NewRunner().WithExecutableName("kvtuner EPP").Run(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
