{{- /* Labels of every object that the chart makes. */}}
{{- define "gpufleet.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: gpufleet
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* Labels that the controller's pods are selected by. */}}
{{- define "gpufleet.controller" -}}
app.kubernetes.io/name: gpufleet
app.kubernetes.io/component: controller
{{- end }}

{{- /* Labels that the agent's pods are selected by. */}}
{{- define "gpufleet.agent" -}}
app.kubernetes.io/name: gpufleet
app.kubernetes.io/component: agent
{{- end }}

{{- /* The namespace is written into the rights, the agent's admission policy and the controller itself. */}}
{{- define "gpufleet.namespace" -}}
{{- if ne .Release.Namespace "gpufleet-system" -}}
{{- fail (printf "gpufleet runs in the namespace gpufleet-system and in no other, not in %s: add --namespace gpufleet-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
gpufleet-system
{{- end }}

{{- /* An image: (dict "root" $ "name" "gpufleet-controller"). */}}
{{- define "gpufleet.image" -}}
{{- $repository := required "image.repository is missing: say where the images gpufleet-controller and gpufleet-agent are, --set image.repository=registry.example.com/gpufleet" .root.Values.image.repository -}}
{{ $repository }}/{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- /* "true" where an object of the Prometheus operator is wanted: (dict "root" $ "enabled" .Values.podMonitor.enabled). */}}
{{- define "gpufleet.monitored" -}}
{{- if eq (toString .enabled) "auto" -}}
{{- if .root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}true{{- end -}}
{{- else if .enabled -}}true{{- end -}}
{{- end }}
