package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kvtuner/kvtuner/store"
	"github.com/kvtuner/kvtuner/store/configmap"
	"github.com/kvtuner/kvtuner/tuner"
	"github.com/kvtuner/kvtuner/tuner/connect"
	"github.com/kvtuner/kvtuner/tuner/notify"
	"github.com/kvtuner/kvtuner/tuner/web"
)

// Limits of the HTTP server. A write may take as long as a slow reader of the
// largest record needs.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	// shutdownGrace is how long requests in progress may take to end.
	shutdownGrace = 5 * time.Second
)

// daemon is everything one process runs: a loop a pool, their history, and the
// HTTP server that shows them.
type daemon struct {
	config     tuner.Config
	log        *slog.Logger
	ticks      ticks
	pools      *pools
	discover   func(context.Context)
	prometheus *connect.Client
	registry   *prometheus.Registry
	cluster    *cluster    // nil if Kubernetes is not used
	leads      atomic.Bool // while this process tunes
	notifier   *notify.Notifier
	spans      *spans
	history    *store.History
	listener   net.Listener
	server     *http.Server
}

// newDaemon acquires what the daemon must have: its history and its address.
// The caller runs it, which releases them.
func newDaemon(c tuner.Config, log *slog.Logger, t ticks) (*daemon, error) {
	api, err := connect.New(c.Prometheus)
	if err != nil {
		return nil, usage(err)
	}
	k, err := newCluster(c, log)
	if err != nil {
		return nil, err
	}
	spans, err := newSpans(c.Tracing, log)
	if err != nil {
		return nil, usage(err)
	}
	d := &daemon{config: c, log: log, ticks: t, pools: &pools{ticks: t}, prometheus: api, registry: newRegistry(), cluster: k, spans: spans}
	d.history, err = store.OpenHistory(store.HistoryOptions{
		Path: c.History.Path, MaxPerPool: c.History.MaxPerPool, MaxAge: c.History.MaxAge,
	})
	if err != nil {
		spans.close()
		return nil, err
	}
	if err := d.build(); err != nil {
		spans.close()
		return nil, errors.Join(err, d.history.Close())
	}
	d.announce()
	return d, nil
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// build makes the loops and the server, and takes the address last.
func (d *daemon) build() error {
	c := d.config
	if err := d.buildLoops(); err != nil {
		return err
	}
	handler, err := web.New(web.Options{
		Version: readBuild().Version, Pools: d.pools, History: d.history,
		Gatherer: d.registry, Now: time.Now, Logger: d.log, Settings: d.settingsOf,
		TokenFile: c.Web.TokenFile, ClientCertificates: c.Web.TLS.ClientCAFile != "",
	})
	if err != nil {
		return usage(err)
	}
	d.server = &http.Server{
		Handler: handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	if t := c.Web.TLS; t.CertFile != "" {
		files := web.TLSFiles{Cert: t.CertFile, Key: t.KeyFile, ClientCA: t.ClientCAFile}
		if d.server.TLSConfig, err = files.Config(d.log); err != nil {
			return usage(err)
		}
	}
	if d.listener, err = net.Listen("tcp", c.Listen); err != nil {
		return fmt.Errorf("setting listen: %w", err)
	}
	return nil
}

// settingsOf a pool that is tuned.
func (d *daemon) settingsOf(pool string) []tuner.Setting {
	p, found := d.pools.config(pool)
	if !found {
		return nil
	}
	return d.config.SettingsOf(p)
}

func (d *daemon) buildLoops() error {
	var err error
	d.notifier, err = notify.New(notify.Options{Targets: d.config.Notifications, Pause: pause, Logger: d.log, Registerer: d.registry})
	if err != nil {
		return err
	}
	for _, p := range d.config.Pools {
		l, err := d.newLoop(p, false)
		if err != nil {
			return fmt.Errorf("pool %q: %w", p.Name, err)
		}
		d.pools.add(l)
	}
	d.discover, err = newDiscovery(d)
	return err
}

// newLoop puts the pool's documents where the configuration wants them; if they are
// existing, their ConfigMap is never made.
func (d *daemon) newLoop(p tuner.PoolConfig, existing bool) (*loop, error) {
	l := &loop{config: p, metrics: &ownMetrics{Registerer: d.registry}}
	o := tuner.Options{
		Settings: p.Settings, Prometheus: d.prometheus, QueryTimeout: d.config.Prometheus.Timeout,
		Journal: d.notifier.Journal(d.history), Logger: d.log, Registerer: l.metrics, Tracer: d.spans.tracer(),
	}
	var documents *configmap.Store
	if p.Store.File != "" {
		o.Documents = &lateFile{o: store.FileOptions{Path: p.Store.File, Pool: p.Name, Logger: d.log}, observing: p.Mode == tuner.Observe}
	} else {
		var err error
		if documents, err = d.cluster.documents(p, existing); err != nil {
			return nil, err
		}
		o.Documents, o.Journal = documents, d.cluster.journal(o.Journal, documents)
	}
	t, err := tuner.New(o)
	if err != nil {
		l.metrics.withdraw()
		return nil, err
	}
	l.led = led{t, &d.leads}
	l.check = &poolCheck{config: d.config, pool: p, client: d.prometheus, cluster: d.cluster, show: t.Preflight, log: d.log.With("pool", p.Name)}
	if documents != nil {
		l.reporter = d.cluster.reporter(t, documents)
	}
	return l, nil
}

func (d *daemon) announce() {
	c := d.config
	pools := make([]string, len(c.Pools))
	for i, p := range c.Pools {
		pools[i] = fmt.Sprintf("%s (%s)", p.Name, p.Mode)
	}
	d.log.Info("kvtuner started", "version", readBuild().Version, "pools", pools,
		"address", d.listener.Addr().String(), "history", c.History.Path)
	if a, ok := d.listener.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() && c.Web.TokenFile != "" && c.Web.TLS.CertFile == "" {
		d.log.Warn("operators' tokens cross the network in the clear: set web.tls, or let something in front of this speak TLS", "listen", c.Listen)
	}
}

// run serves and tunes until ctx ends, then releases everything. A pool in
// trouble never ends it.
func (d *daemon) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	tuned := make(chan error, 1)
	go func() { tuned <- d.cluster.lead(ctx, d.config.Kubernetes.Lease, d.tune) }()
	served := make(chan error, 1)
	go func() { served <- d.serve() }()
	var discovering sync.WaitGroup
	discovering.Go(func() { d.discover(ctx) })

	var errs []error
	select {
	case err := <-tuned: // before ctx ended: another replica leads, and this one starts over
		tuned <- nil
		errs = append(errs, err, d.stopServing())
		<-served
	case <-ctx.Done():
		d.log.Info("kvtuner is stopping")
		errs = append(errs, d.stopServing())
		<-served
	case err := <-served:
		errs = append(errs, fmt.Errorf("serving HTTP: %w", err))
		stop()
	}
	errs = append(errs, <-tuned)
	stop()
	discovering.Wait()
	d.spans.close()
	d.prometheus.Close()
	d.cluster.close()
	return errors.Join(append(errs, d.history.Close())...)
}

// tune all pools until ctx ends.
func (d *daemon) tune(ctx context.Context) {
	d.leads.Store(true)
	defer d.leads.Store(false)
	var loops sync.WaitGroup
	loops.Go(func() { d.pools.run(ctx) })
	loops.Go(func() { d.notifier.Run(ctx) })
	loops.Wait()
}

func (d *daemon) serve() error {
	if d.server.TLSConfig != nil {
		return d.server.ServeTLS(d.listener, "", "")
	}
	return d.server.Serve(d.listener)
}

func (d *daemon) stopServing() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stopping the HTTP server: %w", err), d.server.Close())
	}
	return nil
}
