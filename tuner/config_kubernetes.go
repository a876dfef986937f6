package tuner

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/viper"
)

// KubernetesConfig says how the daemon uses the API server, which it needs only for
// pools that are stored in a ConfigMap or found in the cluster.
type KubernetesConfig struct {
	// Kubeconfig is the file that says where the API server is; empty is as kubectl
	// finds it, and in a pod its service account.
	Kubeconfig string `mapstructure:"kubeconfig"`
	// Events tells Kubernetes of each decision.
	Events bool        `mapstructure:"events"`
	Lease  LeaseConfig `mapstructure:"lease"`
	// Discover finds pools beside those of the configuration.
	Discover DiscoverConfig `mapstructure:"discover"`
}

// LeaseConfig elects the one replica that tunes.
type LeaseConfig struct {
	// Name of the Lease; empty has no election. Namespace; empty is the pod's.
	Name      string `mapstructure:"name"`
	Namespace string `mapstructure:"namespace"`
	// Duration is how long a leader that was killed is waited for, in whole seconds.
	Duration time.Duration `mapstructure:"duration"`
}

// ConfigMapConfig names the key that a pool's document is kept in.
type ConfigMapConfig struct {
	// Namespace; empty is the pod's.
	Namespace string `mapstructure:"namespace"`
	// Name; empty is none.
	Name string `mapstructure:"name"`
	Key  string `mapstructure:"key"`
}

const defaultConfigMapKey = "parameters.json"

func setKubernetesDefaults(v *viper.Viper) {
	v.SetDefault("kubernetes.kubeconfig", "")
	v.SetDefault("kubernetes.events", true)
	v.SetDefault("kubernetes.lease.name", "")
	v.SetDefault("kubernetes.lease.namespace", "")
	v.SetDefault("kubernetes.lease.duration", "15s")
	v.SetDefault("kubernetes.discover.namespace", "")
	v.SetDefault("kubernetes.discover.configMaps", "")
	v.SetDefault("kubernetes.discover.inferencePools", "")
	v.SetDefault("kubernetes.discover.selector", "")
}

func (k KubernetesConfig) validate() error {
	d := k.Lease.Duration
	if err := between("kubernetes.lease.duration", d, time.Second, 10*time.Minute); err != nil {
		return err
	}
	if d%time.Second != 0 {
		return fmt.Errorf("kubernetes.lease.duration: %v is not allowed; whole seconds", d)
	}
	return nil
}

// UsesKubernetes tells that the API server is needed.
func (c Config) UsesKubernetes() bool {
	for _, p := range c.Pools {
		if p.Store.ConfigMap.Name != "" {
			return true
		}
	}
	return c.Kubernetes.Lease.Name != "" || c.Kubernetes.Discover.Enabled()
}

// place is the pool's document in words, for telling two pools' apart.
func (s StoreConfig) place() string {
	if s.File != "" {
		return s.File
	}
	return fmt.Sprintf("ConfigMap %s/%s", s.ConfigMap.Namespace, s.ConfigMap.Name)
}

func (s StoreConfig) validate() error {
	switch {
	case s.File == "" && s.ConfigMap.Name == "":
		return errors.New("is empty; give file, the path of the pool's parameter document, or configMap.name")
	case s.File != "" && s.ConfigMap.Name != "":
		return fmt.Errorf("file %q and configMap %q are both set; a pool has one document", s.File, s.ConfigMap.Name)
	case s.ConfigMap.Name == "" && s.ConfigMap.Namespace != "":
		return errors.New("configMap.name: is empty while its namespace is set")
	}
	return nil
}
