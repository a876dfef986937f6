{{- define "kvtuner.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}
{{- define "kvtuner.account" -}}{{ .Values.serviceAccount.name | default (include "kvtuner.name" .) }}{{- end }}
{{- define "kvtuner.labels" -}}
app.kubernetes.io/name: kvtuner
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "kvtuner.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end }}
{{- define "kvtuner.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "listen" ":9095" -}}
{{- $_ := set $config "history" (dict "path" "/var/lib/kvtuner/history.db") -}}
{{- $_ := set $config "kubernetes" (dict "lease" (dict "name" (include "kvtuner.name" .)) "discover" .Values.discover) -}}
{{- if not (or $config.pools .Values.discover.configMaps .Values.discover.inferencePools) -}}
{{- fail "config.pools is empty: list a pool, or set discover.configMaps or discover.inferencePools" -}}
{{- end -}}
{{- if not (hasKey $config "log") }}{{ $_ := set $config "log" (dict "format" "json") }}{{ end -}}
{{- $pools := list -}}
{{- range $config.pools -}}
{{- $pools = append $pools (merge (dict "store" (dict "configMap" (dict "name" (printf "%s-%s" (include "kvtuner.name" $) .name)))) .) -}}
{{- end -}}
{{- $_ := set $config "pools" $pools -}}
{{ toYaml $config }}
{{- end }}
{{- define "kvtuner.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
{{- define "kvtuner.podSecurity" -}}
{{- if .Values.podSecurityContext }}{{ toYaml .Values.podSecurityContext }}{{ else -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- end }}
