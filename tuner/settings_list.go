package tuner

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/kvtuner/kvtuner/store"
)

// Setting is one line of a configuration, for people to read.
type Setting struct{ Name, Value string }

// SettingsOf lists what holds for a pool, its defaults included; the daemon's own
// settings follow the pool's. What can be a secret is not in it: the values of
// headers and of parameters, passwords, and whatever a URL has besides its host
// and path.
func (c Config) SettingsOf(p PoolConfig) []Setting {
	return list(list(nil, "", reflect.ValueOf(p)), "", reflect.ValueOf(c))
}

// list appends the settings of a struct, by their names in the file.
func list(all []Setting, prefix string, v reflect.Value) []Setting {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case options == "squash":
			all = list(all, prefix, value)
		case isLeaf(value):
			if name == "" {
				name = strings.ToLower(f.Name[:1]) + f.Name[1:]
			}
			all = append(all, Setting{prefix + name, display(name, value)})
		default:
			if name == "" {
				name = strings.ToLower(f.Name[:1]) + f.Name[1:]
			}
			all = list(all, prefix+name+".", value)
		}
	}
	return all
}

func isLeaf(v reflect.Value) bool {
	_, params := v.Interface().(store.Params)
	return params || v.Kind() != reflect.Struct
}

const hidden = "(hidden)"

var (
	secretName = regexp.MustCompile(`(?i)(secret|password|token|credential|authorization)`)
	secretList = regexp.MustCompile(`^(headers|endpointParams)$`)
)

func display(name string, v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return value.String()
	case []string:
		return displayList(name, value)
	case string:
		return displayText(name, value)
	case []Window:
		var windows []string
		for _, w := range value {
			windows = append(windows, fmt.Sprintf("%q for %v", w.Start, w.Duration))
		}
		return strings.Join(windows, ", ")
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map { // whose elements can hold secrets
		return fmt.Sprintf("%d, not shown", v.Len())
	}
	return fmt.Sprint(v.Interface())
}

func displayList(name string, values []string) string {
	out := make([]string, len(values))
	for i, s := range values {
		out[i] = s
		if secretList.MatchString(name) {
			out[i] = s[:max(0, strings.IndexAny(s, ":="))] + ": " + hidden
		}
	}
	return strings.Join(out, ", ")
}

func displayText(name, value string) string {
	file := strings.HasSuffix(name, "File") || strings.HasSuffix(name, "URL")
	if value != "" && secretName.MatchString(name) && !file {
		return hidden
	}
	if !strings.Contains(value, "://") {
		return value
	}
	u, err := url.Parse(value)
	if err != nil {
		return hidden
	}
	if u.User != nil {
		u.User = url.User(hidden)
	}
	if u.RawQuery != "" {
		u.RawQuery = hidden
	}
	return strings.ReplaceAll(u.String(), "%28hidden%29", hidden)
}
