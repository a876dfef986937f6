package tuner

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// DiscoverConfig finds pools by objects of the cluster that carry a label, and tunes
// them for as long as the objects are there. Both label selectors are as kubectl's; an
// empty one finds none.
type DiscoverConfig struct {
	// Namespace of the objects; empty is the pod's.
	Namespace string `mapstructure:"namespace"`
	// ConfigMaps that stand for pools and hold their documents.
	ConfigMaps string `mapstructure:"configMaps"`
	// InferencePools of the Gateway API, whose documents are in ConfigMaps
	// "kvtuner-<name>".
	InferencePools string `mapstructure:"inferencePools"`
	// Selector of a pool whose object does not say its own, with {namespace} and
	// {pool} in the place of the object's namespace and the pool's name.
	Selector string `mapstructure:"selector"`
}

// Enabled tells that pools are looked for.
func (d DiscoverConfig) Enabled() bool { return d.ConfigMaps != "" || d.InferencePools != "" }

// Found is an object of the cluster that stands for a pool.
type Found struct {
	// Pool is the pool's name.
	Pool string
	// Document is where its parameters are kept.
	Document ConfigMapConfig
	// Overrides of the configuration's defaults, as YAML.
	Overrides string
}

// maxOverrides bounds the overrides of one pool in bytes; all settings take a fifth.
const maxOverrides = 16 << 10

// Adopt makes the configuration of a pool that was found: the defaults, and what its
// object overrides.
func (c Config) Adopt(f Found) (PoolConfig, error) {
	p, err := c.standard()
	if err != nil {
		return PoolConfig{}, err
	}
	if d := c.Kubernetes.Discover; d.Selector != "" {
		p.Selector = strings.NewReplacer("{namespace}", f.Document.Namespace, "{pool}", f.Pool).Replace(d.Selector)
	}
	overrides, err := parseOverrides(f.Overrides)
	if err == nil {
		err = decodeStrictly(overrides, &p.Settings)
	}
	if err != nil {
		return PoolConfig{}, fmt.Errorf("its settings: %w", err)
	}
	p.Name, p.Store.ConfigMap.Namespace, p.Store.ConfigMap.Name = f.Pool, f.Document.Namespace, f.Document.Name
	if p.Selector == "" {
		return PoolConfig{}, errors.New("selector: is empty, and all engines of Prometheus are not one pool's; say which are, in the object's settings or in kubernetes.discover.selector")
	}
	return p, p.Validate()
}

// validateStandard refuses defaults that no pool could be found with.
func (c Config) validateStandard() error {
	p, err := c.standard()
	if err != nil {
		return err
	}
	p.Name = "defaults"
	return p.Validate()
}

func parseOverrides(text string) (map[string]any, error) {
	if len(text) > maxOverrides {
		return nil, fmt.Errorf("they have %d bytes; %d at most", len(text), maxOverrides)
	}
	var overrides map[string]any
	if err := yaml.Unmarshal([]byte(text), &overrides); err != nil {
		return nil, fmt.Errorf("they are not YAML such as \"mode: enforce\": %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(overrides)) {
		if strings.EqualFold(key, "name") || strings.EqualFold(key, "store") {
			return nil, fmt.Errorf("%s: the object itself says it", key)
		}
	}
	return overrides, nil
}
