package plugin

import (
	"encoding/json"
	"strings"
)

// maxLoadTiers is more tiers than any engine has.
const maxLoadTiers = 64

// LoadTiers reads the tiers that the client permits to load from, out of
// kv_transfer_params.kv_load_tiers of a request's body, in lower case. An entry
// is a tier's name or an object with its name as "medium"; of a list of more
// than 64 entries the rest is not read. nil permits all: the
// field is absent, null, or says something that names no tiers, such as a
// locality alone.
func LoadTiers(body map[string]any) []string {
	switch params := body[fieldParams].(type) {
	case map[string]any:
		return tiers(params[fieldLoadTiers])
	case json.RawMessage:
		if checkRaw(params) != nil {
			return nil
		}
		m, found, _ := locate(params, fieldLoadTiers) // the engine takes the last, too
		if !found {
			return nil
		}
		return tiers(params[m.value:m.end])
	default:
		return nil
	}
}

func tiers(value any) []string {
	switch v := value.(type) {
	case json.RawMessage:
		var list []any
		if json.Unmarshal(v, &list) != nil || list == nil {
			return nil
		}
		return tiers(list)
	case []string:
		return tierNames(v)
	case []any:
		return tierNames(v)
	default:
		return nil
	}
}

func tierNames[T any](list []T) []string {
	if list == nil {
		return nil
	}
	list = list[:min(len(list), maxLoadTiers)]
	names := make([]string, 0, len(list))
	for _, entry := range list {
		name, ok := tierName(entry)
		if !ok {
			return nil
		}
		names = append(names, strings.ToLower(name))
	}
	return names
}

func tierName(entry any) (string, bool) {
	if matcher, ok := entry.(map[string]any); ok {
		entry = matcher["medium"]
	}
	name, ok := entry.(string)
	return name, ok && name != ""
}
