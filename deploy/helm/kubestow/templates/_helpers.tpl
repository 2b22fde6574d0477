{{/* The name of the application: the chart's, or nameOverride. */}}
{{- define "kubestow.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* The name of the objects: the release, and the application unless the release is called after it. */}}
{{- define "kubestow.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "kubestow.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "kubestow.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* The name of objects that releases in several namespaces share a place for: cluster-scoped, or in kube-system. */}}
{{- define "kubestow.clusterName" -}}
{{- if eq .Release.Namespace "kube-system" -}}
{{- include "kubestow.fullname" . -}}
{{- else -}}
{{- printf "%s-%s" .Release.Namespace (include "kubestow.fullname" .) -}}
{{- end -}}
{{- end }}

{{- define "kubestow.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "kubestow.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kubestow.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end }}

{{- define "kubestow.labels" -}}
{{ include "kubestow.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ include "kubestow.chart" . }}
{{- end }}

{{/* The image; the only place where its name and tag are put together. */}}
{{- define "kubestow.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{- define "kubestow.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "kubestow.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{/* The Lease that the replicas elect their leader on. Each release has its own by default: releases would wait for each other. */}}
{{- define "kubestow.lease" -}}
{{- (.Values.configuration.leaderElection | default dict).resourceName | default (include "kubestow.clusterName" .) -}}
{{- end }}

{{- define "kubestow.leaseNamespace" -}}
{{- (.Values.configuration.leaderElection | default dict).resourceNamespace | default "kube-system" -}}
{{- end }}

{{/* The configuration: that of the values, with the defaults of this release. */}}
{{- define "kubestow.configuration" -}}
{{- $election := dict "resourceName" (include "kubestow.lease" .) -}}
{{- $profiles := list (dict "schedulerName" (include "kubestow.fullname" .)) -}}
{{- $defaults := dict "leaderElection" $election "profiles" $profiles -}}
{{- toYaml (merge (deepCopy (.Values.configuration | default dict)) $defaults) -}}
{{- end }}
