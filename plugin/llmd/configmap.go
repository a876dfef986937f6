package llmd

import (
	"log/slog"

	"github.com/kvtuner/kvtuner/plugin"
	"github.com/kvtuner/kvtuner/plugin/adapter"
	"github.com/kvtuner/kvtuner/store/configmap"
)

// openConfigMap reads a pool's ConfigMap from the API server that the EPP uses.
func openConfigMap(m plugin.ConfigMap, pool string, log *slog.Logger) (adapter.Watcher, error) {
	return configmap.Find(adapter.KubeconfigFlag(), configmap.Options{
		Namespace: m.Namespace, Name: m.Name, Key: m.Key, Pool: pool, Logger: log,
	})
}
