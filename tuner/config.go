package tuner

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"github.com/kvtuner/kvtuner/store"
)

// Config is the daemon's configuration file. It is read once and never changes:
// a new configuration is a new process.
type Config struct {
	// Listen is the address of /metrics, /healthz, /readyz and the API.
	Listen     string           `mapstructure:"listen"`
	Web        WebConfig        `mapstructure:"web"`
	Log        LogConfig        `mapstructure:"log"`
	Prometheus PrometheusConfig `mapstructure:"prometheus"`
	History    HistoryConfig    `mapstructure:"history"`
	Tracing    TracingConfig    `mapstructure:"tracing"`
	Kubernetes KubernetesConfig `mapstructure:"kubernetes"`
	// Notifications tell people of decisions.
	Notifications []NotificationConfig `mapstructure:"notifications"`
	// Pools are tuned independently of each other.
	Pools []PoolConfig `mapstructure:"-"`
	// defaults of every pool, as the file and the environment have them.
	defaults any
}

// WebConfig says who may command the pools over HTTP. With neither tokens nor
// client certificates, nobody may.
type WebConfig struct {
	// TokenFile has an operator a line, as NAME TOKEN. It is read at each command.
	TokenFile string       `mapstructure:"tokenFile"`
	TLS       WebTLSConfig `mapstructure:"tls"`
}

// WebTLSConfig names PEM files, which are read at each handshake. Without CertFile
// the server speaks plain HTTP.
type WebTLSConfig struct {
	CertFile string `mapstructure:"certFile"`
	KeyFile  string `mapstructure:"keyFile"`
	// ClientCAFile signs the certificates of operators.
	ClientCAFile string `mapstructure:"clientCAFile"`
}

// LogConfig sets the daemon's log.
type LogConfig struct {
	// Level is debug, info, warn or error; Format is text or json.
	Level  string `mapstructure:"level"`
	Format string `mapstructure:"format"`
}

// HistoryConfig bounds the history of decisions.
type HistoryConfig struct {
	Path       string        `mapstructure:"path"`
	MaxPerPool int           `mapstructure:"maxPerPool"`
	MaxAge     time.Duration `mapstructure:"maxAge"`
}

// PoolConfig is one pool: its settings and where its document lives.
type PoolConfig struct {
	Settings `mapstructure:",squash"`
	Store    StoreConfig `mapstructure:"store"`
}

// StoreConfig says where a pool's parameter document lives.
type StoreConfig struct {
	File      string          `mapstructure:"file"`
	ConfigMap ConfigMapConfig `mapstructure:"configMap"`
}

// EnvPrefix starts the environment variables that override the file: the path
// of a setting in upper case, dots as underscores, such as
// KVTUNER_PROMETHEUS_URL or KVTUNER_DEFAULTS_MODE.
const EnvPrefix = "KVTUNER"

// LoadConfig reads a YAML, TOML or JSON file. Unknown keys and impossible
// values are errors, all of them reported at once.
//
// The section "defaults" holds settings of all pools; each entry of "pools"
// overrides them.
func LoadConfig(path string) (Config, error) {
	all, err := readConfig(path)
	if err != nil {
		return Config{}, err
	}
	c, err := decodeConfig(all)
	if err == nil {
		err = c.validate()
	}
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// LoadPrometheus reads no more of a file than where Prometheus is and how to get
// in: all there is before the pools are known.
func LoadPrometheus(path string) (PrometheusConfig, error) {
	all, err := readConfig(path)
	if err != nil {
		return PrometheusConfig{}, err
	}
	var c PrometheusConfig
	if err = decodeStrictly(all["prometheus"], &c); err == nil {
		err = c.Validate()
	}
	if err != nil {
		return PrometheusConfig{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// readConfig reads a file and the environment.
func readConfig(path string) (map[string]any, error) {
	v := viper.New()
	v.SetConfigFile(path)
	v.SetEnvPrefix(EnvPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	v.AutomaticEnv()
	setDefaults(v)
	for _, key := range settingKeys("defaults", reflect.TypeFor[Settings]()) {
		if err := v.BindEnv(key); err != nil {
			return nil, fmt.Errorf("reading the environment: %w", err)
		}
	}
	if err := checkConfigSize(path); err != nil {
		return nil, fmt.Errorf("reading configuration %s: %w", path, err)
	}
	if err := v.ReadInConfig(); err != nil {
		if unsupported := viper.UnsupportedConfigError(""); errors.As(err, &unsupported) {
			err = errors.New("its name does not say what it holds; it must end in .yaml, .toml or .json")
		}
		return nil, fmt.Errorf("reading configuration %s: %w", path, err)
	}
	return v.AllSettings(), nil
}

// maxConfigSize bounds a configuration file in bytes: a hundred pools take a tenth of
// it, and a repetitive YAML file of 30 MB takes all memory to parse.
const maxConfigSize = 1 << 20

// checkConfigSize refuses what is no file of a bearable size; a file that is not
// there is for the reader to report.
func checkConfigSize(path string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil
	case !info.Mode().IsRegular():
		return errors.New("it is a folder, a pipe or a device; want a file")
	case info.Size() > maxConfigSize:
		return fmt.Errorf("it has %d bytes; %d at most", info.Size(), maxConfigSize)
	}
	return nil
}

func setDefaults(v *viper.Viper) {
	v.SetDefault("listen", "127.0.0.1:9095")
	v.SetDefault("web.tokenFile", "")
	v.SetDefault("web.tls.certFile", "")
	v.SetDefault("web.tls.keyFile", "")
	v.SetDefault("web.tls.clientCAFile", "")
	v.SetDefault("log.level", "info")
	v.SetDefault("log.format", "text")
	setPrometheusDefaults(v)
	setKubernetesDefaults(v)
	setTracingDefaults(v)
	v.SetDefault("history.path", "kvtuner-history.db")
	v.SetDefault("history.maxPerPool", 10000)
	v.SetDefault("history.maxAge", "2160h")
	v.SetDefault("defaults.mode", string(Observe))
}

// settingKeys are the paths of all settings, so that each can be overridden by the
// environment whether the file names it or not. Lists cannot.
func settingKeys(path string, t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		key := path + "." + f.Tag.Get("mapstructure")
		switch {
		case f.Type == reflect.TypeFor[store.Params]():
			keys = append(keys, key)
		case f.Type.Kind() == reflect.Struct && f.Type.PkgPath() != reflect.TypeFor[Settings]().PkgPath():
			keys = append(keys, boundKeys(key)...)
		case f.Type.Kind() == reflect.Struct:
			keys = append(keys, settingKeys(key, f.Type)...)
		case f.Type.Kind() != reflect.Slice:
			keys = append(keys, key)
		}
	}
	return keys
}

// boundKeys are the four ends of the bounds, whose type belongs to the store.
func boundKeys(path string) []string {
	return []string{
		path + ".minExternalReusableTokens.min", path + ".minExternalReusableTokens.max",
		path + ".maxWaitingRequests.min", path + ".maxWaitingRequests.max",
	}
}

func decodeConfig(all map[string]any) (Config, error) {
	defaults, pools := all["defaults"], all["pools"]
	delete(all, "defaults")
	delete(all, "pools")
	var c Config
	if err := decodeStrictly(all, &c); err != nil {
		return Config{}, err
	}
	c.defaults = defaults
	if _, err := c.standard(); err != nil {
		return Config{}, err
	}
	list, ok := pools.([]any)
	if (!ok || len(list) == 0) && !c.Kubernetes.Discover.Enabled() {
		return Config{}, errors.New("pools: is empty; list at least one pool, such as \"pools: [{name: default, store: {file: params.json}}]\", or have them found by kubernetes.discover")
	}
	var errs []error
	for i, raw := range list {
		p, err := c.standard()
		if err != nil {
			return Config{}, err
		}
		if err := decodeStrictly(raw, &p); err != nil {
			errs = append(errs, fmt.Errorf("pools[%d]: %w", i, err))
		}
		c.Pools = append(c.Pools, p)
	}
	return c, errors.Join(errs...)
}

// standard is a pool that overrides nothing.
func (c Config) standard() (PoolConfig, error) {
	p := PoolConfig{Settings: DefaultSettings(), Store: StoreConfig{ConfigMap: ConfigMapConfig{Key: defaultConfigMapKey}}}
	if err := decodeStrictly(c.defaults, &p); err != nil {
		return PoolConfig{}, fmt.Errorf("defaults: %w", err)
	}
	return p, nil
}

// sectionName is the decoder's for a section, a Go type.
var sectionName = regexp.MustCompile(`'tuner\.(PoolConfig|PrometheusConfig|Config|Settings)' has`)

func decodeStrictly(from, into any) error {
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: into, ErrorUnused: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			durationHook, paramsHook, numberHook, textNumberHook, mapstructure.TextUnmarshallerHookFunc(),
		),
	})
	if err != nil {
		return err
	}
	if err := d.Decode(from); err != nil {
		return errors.New(sectionName.ReplaceAllString(err.Error(), "there are"))
	}
	return nil
}

// durationHook wants a unit: a bare 150 would be 150 nanoseconds.
func durationHook(from, to reflect.Type, value any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() || from == to {
		return value, nil
	}
	s, ok := value.(string)
	if !ok {
		return nil, fmt.Errorf("%v is not a duration; write it with a unit, such as 150s or 5m", value)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return nil, fmt.Errorf("%q is not a duration; write it with a unit, such as 150s or 5m", s)
	}
	return d, nil
}

// paramsHook reads "1024+8" as parameters.
func paramsHook(_, to reflect.Type, value any) (any, error) {
	if to != reflect.TypeFor[store.Params]() {
		return value, nil
	}
	switch v := value.(type) {
	case string:
		return store.ParseParams(v)
	case int, int64, float64:
		return nil, fmt.Errorf("%v is not a pair of thresholds; write <tokens>+<waiting>, such as 1024+8", v)
	}
	return value, nil
}

// textNumberHook reads the numbers and booleans that the environment gives as text.
func textNumberHook(from, to reflect.Type, value any) (any, error) {
	s, ok := value.(string)
	if !ok || to == reflect.TypeFor[time.Duration]() || to == reflect.TypeFor[store.Tokens]() {
		return value, nil
	}
	switch to.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not true or false", s)
		}
		return b, nil
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", s)
		}
		return n, nil
	case reflect.Float64:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", s)
		}
		return f, nil
	}
	return value, nil
}

// numberHook refuses fractions where a whole number is wanted.
func numberHook(from, to reflect.Type, value any) (any, error) {
	if from.Kind() != reflect.Float64 {
		return value, nil
	}
	switch to.Kind() {
	case reflect.Int, reflect.Int64:
		if f := value.(float64); f != float64(int64(f)) {
			return nil, fmt.Errorf("%v is not a whole number", f)
		}
	}
	return value, nil
}

func (c Config) validate() error {
	errs := []error{c.Web.TLS.validate(), c.Log.validate(), c.Prometheus.Validate(), c.History.validate(), c.Kubernetes.validate(), c.Tracing.validate(), validateNotifications(c)}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		errs = append(errs, fmt.Errorf("listen: %q is not host:port: %w", c.Listen, err))
	}
	if c.Kubernetes.Discover.Enabled() {
		errs = append(errs, c.validateStandard())
	}
	names, places := map[string]bool{}, map[string]bool{}
	for i, p := range c.Pools {
		errs = append(errs, p.Validate())
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("pools[%d].name: %q is there twice; each pool has one tuner", i, p.Name))
		}
		names[p.Name] = true
		if err := p.Store.validate(); err != nil {
			errs = append(errs, fmt.Errorf("pools[%d].store: %w", i, err))
			continue
		}
		if places[p.Store.place()] {
			errs = append(errs, fmt.Errorf("pools[%d].store: %q belongs to another pool; each pool has its own document", i, p.Store.place()))
		}
		places[p.Store.place()] = true
	}
	return errors.Join(errs...)
}

func (t WebTLSConfig) validate() error {
	switch {
	case t.CertFile == "" && t.KeyFile != "":
		return errors.New("web.tls.certFile: is empty, but web.tls.keyFile is not; both are needed")
	case t.CertFile != "" && t.KeyFile == "":
		return errors.New("web.tls.keyFile: is empty, but web.tls.certFile is not; both are needed")
	case t.CertFile == "" && t.ClientCAFile != "":
		return errors.New("web.tls.clientCAFile: needs web.tls.certFile and keyFile: certificates of clients are shown over TLS only")
	}
	return nil
}

func (l LogConfig) validate() error {
	var errs []error
	switch l.Level {
	case "debug", "info", "warn", "error":
	default:
		errs = append(errs, fmt.Errorf("log.level: %q is not allowed; debug, info, warn or error", l.Level))
	}
	if l.Format != "text" && l.Format != "json" {
		errs = append(errs, fmt.Errorf("log.format: %q is not allowed; text or json", l.Format))
	}
	return errors.Join(errs...)
}

func (h HistoryConfig) validate() error {
	errs := []error{between("history.maxAge", h.MaxAge, time.Hour, 10*365*24*time.Hour)}
	if h.Path == "" {
		errs = append(errs, errors.New("history.path: is empty; give the path of the history's database"))
	}
	if h.MaxPerPool < 1 {
		errs = append(errs, fmt.Errorf("history.maxPerPool: %d is not allowed; 1 or more", h.MaxPerPool))
	}
	if info, err := os.Stat(h.Path); err == nil && info.IsDir() {
		errs = append(errs, fmt.Errorf("history.path: %q is a folder; give the path of a file in it", h.Path))
	}
	return errors.Join(errs...)
}
