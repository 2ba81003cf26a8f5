{{/* What finds the pods. */}}
{{- define "usher.selector" -}}
app.kubernetes.io/name: usher
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "usher.labels" -}}
{{ include "usher.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: gateway
{{- end }}

{{/* Name and namespace: everything that is not the cluster's lies beside the release. */}}
{{- define "usher.metadata" -}}
name: {{ .Release.Name }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "usher.labels" . | nindent 2 }}
{{- end }}

{{- define "usher.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "usher.adminAddress" -}}
{{- .Values.admin.address | default (ternary "$(HOST_IP)" "127.0.0.1" .Values.monitoring.enabled) -}}
{{- end }}

{{/* Where the kubelet asks: without a host it asks the pod's address, which is the host's. */}}
{{- define "usher.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ .root.Values.admin.port }}
  {{- if and (not .root.Values.admin.address) (not .root.Values.monitoring.enabled) }}
  host: 127.0.0.1
  {{- else if hasPrefix "127." .root.Values.admin.address }}
  host: {{ .root.Values.admin.address }}
  {{- end }}
{{- end }}

{{/* Whether the kubelet is to load the profile that usher brings. */}}
{{- define "usher.ownProfile" -}}
{{- if and (eq .Values.seccomp.type "Localhost") (not .Values.privileged) }}yes{{ end }}
{{- end }}

{{/* Flags of `usher serve`, one a line; .Values.flags last, in place of one of the same name. */}}
{{- define "usher.flags" -}}
{{- $v := .Values -}}
{{- $own := list
  (list "secure-port" $v.securePort)
  (list "tls-cert-file" (printf "%s/apiserver.crt" $v.pki))
  (list "tls-private-key-file" (printf "%s/apiserver.key" $v.pki))
  (list "client-ca-file" (printf "%s/ca.crt" $v.pki))
  (list "requestheader-client-ca-file" (printf "%s/front-proxy-ca.crt" $v.pki))
  (list "requestheader-allowed-names" "front-proxy-client")
  (list "requestheader-username-headers" "X-Remote-User")
  (list "requestheader-group-headers" "X-Remote-Group")
  (list "requestheader-extra-headers-prefix" "X-Remote-Extra-")
  (list "service-account-key-file" (printf "%s/sa.pub" $v.pki))
  (list "service-account-issuer" $v.serviceAccountIssuers)
  (list "upstream" $v.upstreams)
  (list "upstream-ca-file" (printf "%s/ca.crt" $v.pki))
  (list "upstream-server-name" $v.upstreamServerName)
  (list "proxy-client-cert-file" (printf "%s/front-proxy-client.crt" $v.pki))
  (list "proxy-client-key-file" (printf "%s/front-proxy-client.key" $v.pki))
  (list "upstream-groups" "system:authenticated")
  (list "flow-control-dir" "/etc/usher/flow-control")
  (list "steering" $v.steering)
  (list "takeover" $v.takeover)
  (list "takeover-address" $v.takeoverAddresses)
  (list "takeover-pin-dir" (ternary (printf "%s/usher" $v.bpfFilesystem) "" (eq $v.takeover "fail-closed")))
  (list "runtime-dir" $v.runtimeDir)
  (list "hand-over" "auto")
  (list "hand-over-wait" "true")
  (list "admin-bind-address" (printf "%s:%v" (include "usher.adminAddress" .) $v.admin.port))
  (list "log-format" "json")
-}}
{{- range $own }}
{{- $name := first . }}
{{- if not (hasKey $v.flags $name) }}
{{- range $value := (kindIs "slice" (last .) | ternary (last .) (list (last .))) }}
{{- if ne (toString $value) "" }}
- --{{ $name }}={{ $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $values := $v.flags }}
{{- range $value := (kindIs "slice" $values | ternary $values (list $values)) }}
- {{ printf "--%s=%s" $name (kindIs "float64" $value | ternary (toString (int64 $value)) (toString $value)) | quote }}
{{- end }}
{{- end }}
{{- end }}
