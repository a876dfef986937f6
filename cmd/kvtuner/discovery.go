package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/kube"
)

// maxPools bounds what one process tunes: whoever may label objects must not be able
// to take all its memory.
const maxPools = 1000

// discovery keeps the pools in step with the objects that stand for them.
type discovery struct {
	config    tuner.Config
	namespace string // of a static pool's ConfigMap that names none
	pools     *pools
	build     func(tuner.PoolConfig, bool) (*loop, error)
	refuse    func(kube.Object, string)
	log       *slog.Logger

	found map[string]adopted // by the pool's name
	said  map[kube.Object]string
}

// adopted is a pool that is tuned for an object.
type adopted struct {
	*loop
	object types.UID
}

// follow until the channel is closed.
func (d *discovery) follow(sights <-chan kube.Sight) {
	d.found, d.said = map[string]adopted{}, map[kube.Object]string{}
	for s := range sights {
		d.meet(s)
	}
}

// candidate is a pool that is wanted.
type candidate struct {
	object kube.Object
	config tuner.PoolConfig
}

// meet what there is now: end what is gone, begin what is new.
func (d *discovery) meet(s kube.Sight) {
	wanted, refused := d.sift(s.Objects)
	ended := map[string]<-chan struct{}{}
	for name, f := range d.found {
		if i := slices.IndexFunc(wanted, ofPool(name)); i >= 0 && reflect.DeepEqual(wanted[i].config, f.config) {
			continue
		}
		d.log.Info("a discovered pool is no longer tuned as it was", "pool", name)
		ended[name] = d.pools.remove(f.loop)
		delete(d.found, name)
	}
	for _, c := range wanted {
		if _, found := d.found[c.config.Name]; found {
			continue
		}
		if err := d.begin(c, ended[c.config.Name]); err != nil {
			refused = append(refused, refusedObject{c.object, err.Error()})
		}
	}
	d.tell(refused, s.Troubles)
}

func ofPool(name string) func(candidate) bool {
	return func(c candidate) bool { return c.config.Name == name }
}

func (d *discovery) begin(c candidate, former <-chan struct{}) error {
	l, err := d.build(c.config, c.object.HoldsDocument())
	if err != nil {
		return err
	}
	l.follows = former
	d.log.Info("pool discovered", "pool", c.config.Name, "object", c.object.String(), "mode", c.config.Mode, "selector", c.config.Selector)
	d.found[c.config.Name] = adopted{l, c.object.UID}
	d.pools.add(l)
	return nil
}

// refusedObject cannot stand for a pool.
type refusedObject struct {
	object kube.Object
	why    string
}

// name stands where a pool's would.
func (r refusedObject) name() string { return r.object.Kind + " " + r.object.Name }

// sift tells the objects that can stand for a pool from those that cannot. What two of
// them want a pool of the configuration gets, then one that is tuned already, then the
// older.
func (d *discovery) sift(objects []kube.Object) (wanted []candidate, refused []refusedObject) {
	t := d.taken()
	for _, o := range d.ranked(objects) {
		c, err := d.config.Adopt(o.Found())
		if err == nil {
			err = t.claim(c, o.String())
		}
		if err != nil {
			refused = append(refused, refusedObject{o, err.Error()})
			continue
		}
		wanted = append(wanted, candidate{o, c})
	}
	return wanted, refused
}

// ranked has the objects of tuned pools first, then those that a tuner before this
// process has written to.
func (d *discovery) ranked(objects []kube.Object) []kube.Object {
	rank := func(o kube.Object) int {
		if f, found := d.found[o.Pool]; found && f.object == o.UID {
			return 0
		}
		if o.Written {
			return 1
		}
		return 2
	}
	ranked := slices.Clone(objects)
	slices.SortStableFunc(ranked, func(a, b kube.Object) int { return cmp.Compare(rank(a), rank(b)) })
	return ranked
}

// taken is who has which name, document and series.
type taken map[string]string

func (d *discovery) taken() taken {
	t := taken{}
	for _, p := range d.config.Pools {
		p.Store.ConfigMap.Namespace = cmp.Or(p.Store.ConfigMap.Namespace, d.namespace)
		for _, thing := range things(p) {
			t[thing] = "the configuration"
		}
	}
	return t
}

// things that only one pool can have.
func things(p tuner.PoolConfig) []string {
	return []string{
		"the name " + p.Name,
		fmt.Sprintf("the document in ConfigMap %s/%s", p.Store.ConfigMap.Namespace, p.Store.ConfigMap.Name),
		"the selector " + p.Selector,
	}
}

func (t taken) claim(p tuner.PoolConfig, by string) error {
	if len(t) >= maxPools*len(things(p)) {
		return fmt.Errorf("there are %d pools, and one process tunes no more: run another, for another label", maxPools)
	}
	for _, thing := range things(p) {
		if owner, found := t[thing]; found {
			return fmt.Errorf("%s belongs to the pool of %s: two tuners of the same would undo each other's work", thing, owner)
		}
	}
	for _, thing := range things(p) {
		t[thing] = by
	}
	return nil
}

// tell of what is refused, of each once.
func (d *discovery) tell(refused []refusedObject, troubles []kube.Trouble) {
	var all []refusal
	said := map[kube.Object]string{}
	for _, r := range refused {
		said[r.object] = r.why
		all = append(all, refusal{what: r.name(), why: "refused: " + r.why})
		if d.said[r.object] != r.why {
			d.log.Warn("an object cannot stand for a pool", "object", r.object.String(), "err", r.why)
			d.refuse(r.object, r.why)
		}
	}
	for _, t := range troubles {
		all = append(all, refusal{what: "discovery of " + t.Kind, why: t.Message})
	}
	d.said = said
	d.pools.refuse(all)
}

// newDiscovery returns what finds pools until its context ends.
func newDiscovery(d *daemon) (func(context.Context), error) {
	c := d.config
	if !c.Kubernetes.Discover.Enabled() {
		return func(context.Context) {}, nil
	}
	watch, err := kube.NewDiscovery(d.cluster.Cluster, c.Kubernetes.Discover, d.log)
	if err != nil {
		return nil, usage(fmt.Errorf("setting kubernetes.%w", err))
	}
	f := &discovery{config: c, namespace: d.cluster.Namespace, pools: d.pools, build: d.newLoop, refuse: d.cluster.refuse, log: d.log}
	return func(ctx context.Context) { f.follow(watch.Watch(ctx)) }, nil
}
