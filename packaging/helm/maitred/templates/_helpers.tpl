{{- define "maitred.selector" -}}
app.kubernetes.io/name: maitred
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "maitred.labels" -}}
{{ include "maitred.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* What every container of the site has. */}}
{{- define "maitred.container" -}}
image: {{ required "image is the image of your site: --set image=NAME:TAG" .Values.image | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "maitred.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.runAsUser }}
  seccompProfile:
    type: RuntimeDefault
automountServiceAccountToken: false
{{- end }}
