{{- define "kubestow.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end }}

{{/* The lease that the replicas elect their leader on, with the defaults of the configuration. */}}
{{- define "kubestow.lease" -}}
{{- (.Values.configuration.leaderElection | default dict).resourceName | default "kube-scheduler" -}}
{{- end }}

{{- define "kubestow.leaseNamespace" -}}
{{- (.Values.configuration.leaderElection | default dict).resourceNamespace | default "kube-system" -}}
{{- end }}
