{{- define "ottla.name" -}}
{{- if contains "ottla" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-ottla" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "ottla.selector" -}}
app.kubernetes.io/name: ottla
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ottla.labels" -}}
{{ include "ottla.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
