package fleet

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
)

// mechanismColumns is the header of the mechanism file.
var mechanismColumns = []string{
	"report", "prefix_tokens", "concurrency", "policy", "external_share_pct", "hbm_share_pct",
	"recomputed_share_pct", "async_lookup_mean_s", "async_lookup_p90_s", "deferred_occupancy", "waiting_mean",
	"cpu_to_gpu_gib_s", "nvme_busy_pct", "nvme_read_gib_s", "nvme_write_gib_s",
}

// addMechanism attaches each line of a mechanism file to its run.
func addMechanism(runs []Measurement, r io.Reader) error {
	lines, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return fmt.Errorf("read mechanism: %w", err)
	}
	if len(lines) == 0 || !slices.Equal(lines[0], mechanismColumns) {
		return fmt.Errorf("read mechanism: the first line must be %s", strings.Join(mechanismColumns, ","))
	}
	for n, fields := range lines[1:] {
		f := fieldReader{columns: mechanismColumns, fields: fields}
		prefix, streams := f.whole(1), f.whole(2)
		m := &Mechanism{
			GPUHitSharePercent: f.must(5),
			LookupMean:         f.must(7),
			LookupP90:          f.must(8),
			ReadGiBps:          f.must(13),
			WriteGiBps:         f.must(14),
		}
		i := slices.IndexFunc(runs, func(run Measurement) bool {
			return run.Report == fields[0] && run.PrefixTokens == prefix && run.Concurrency == streams && run.Setting.Policy == fields[3]
		})
		if i < 0 {
			f.fail(fmt.Errorf("no run of %s, %d tokens, %d streams, %s", fields[0], prefix, streams, fields[3]))
		}
		if f.err != nil {
			return fmt.Errorf("read mechanism: line %d: %w", n+2, f.err)
		}
		runs[i].Mechanism = m
	}
	return nil
}
