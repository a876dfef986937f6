package picture

import (
	"encoding/json"
	"fmt"
)

// Dashboard is what is drawn of one.
type Dashboard struct {
	Title       string  `json:"title"`
	Panels      []Panel `json:"panels"`
	Annotations struct {
		List []annotation `json:"list"`
	} `json:"annotations"`
}

type annotation struct {
	Name  string `json:"name"`
	Color string `json:"iconColor"`
	Expr  string `json:"expr"`
}

// Panel is one of its panels.
type Panel struct {
	Title   string `json:"title"`
	Type    string `json:"type"`
	Targets []struct {
		Expr    string `json:"expr"`
		Legend  string `json:"legendFormat"`
		Instant bool   `json:"instant"`
	} `json:"targets"`
	Pos struct {
		X, Y, W, H float64
	} `json:"gridPos"`
	Field struct {
		Defaults struct {
			Unit       string   `json:"unit"`
			Max        *float64 `json:"max"`
			Thresholds struct {
				Steps []struct {
					Value *float64 `json:"value"`
					Color string   `json:"color"`
				} `json:"steps"`
			} `json:"thresholds"`
			Mappings []struct {
				Options map[string]struct{ Text, Color string } `json:"options"`
			} `json:"mappings"`
			Custom struct {
				DrawStyle     string  `json:"drawStyle"`
				Interpolation string  `json:"lineInterpolation"`
				LineWidth     float64 `json:"lineWidth"`
				FillOpacity   float64 `json:"fillOpacity"`
				Stacking      struct {
					Mode string `json:"mode"`
				} `json:"stacking"`
				Scale struct {
					Type string `json:"type"`
				} `json:"scaleDistribution"`
			} `json:"custom"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

// Read a dashboard as Grafana imports it.
func Read(text []byte) (Dashboard, error) {
	var d Dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("read a dashboard: %w", err)
	}
	return d, nil
}

func (p Panel) stacked() bool { return p.Field.Defaults.Custom.Stacking.Mode == "normal" }
