// Command epp is the Endpoint Picker of gateway-api-inference-extension with
// the plugins "selective-kv-policy", "kv-events-producer" and
// "openai-tokens-parser" built in. It takes the flags and the
// EndpointPickerConfig of the stock one.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/gateway-api-inference-extension/cmd/epp/runner"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"

	"github.com/kvtuner/kvtuner/plugin/gie"
	"github.com/kvtuner/kvtuner/plugin/gie/kvevents"
)

func main() {
	plugin.Register(gie.PluginType, gie.Factory)
	plugin.Register(kvevents.Type, kvevents.Factory)
	plugin.Register(kvevents.ParserType, kvevents.ParserFactory)
	if err := runner.NewRunner().WithExecutableName("kvtuner EPP").Run(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
