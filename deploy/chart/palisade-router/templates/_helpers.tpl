{{- define "palisade.labels" -}}
application: {{ .Release.Name }}
app.kubernetes.io/name: palisade-router
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* Of the pods of one component: dict "root" $ "component" "interior" */}}
{{- define "palisade.selector" -}}
application: {{ .root.Release.Name }}
app.kubernetes.io/name: palisade-router
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "palisade.interRouterSecret" -}}
{{ .Values.interRouter.secret | default (printf "%s-inter-router-certs" .Release.Name) }}
{{- end }}

{{- define "palisade.edgeSecret" -}}
{{ .Values.edge.secret | default (printf "%s-edge-certs" .Release.Name) }}
{{- end }}

{{- define "palisade.clientSecret" -}}
{{ .Values.client.secret | default (printf "%s-client-certs" .Release.Name) }}
{{- end }}

{{- define "palisade.usersSecret" -}}
{{ .Values.users.secret | default (printf "%s-users" .Release.Name) }}
{{- end }}

{{- define "palisade.interRouterUser" -}}
{{ .Values.interRouter.user | default (printf "%s.%s.svc.cluster.local" .Release.Name .Release.Namespace) }}
{{- end }}

{{- define "palisade.edgeUser" -}}
{{ .Values.edge.user | default (printf "%s-edge" .Release.Name) }}
{{- end }}

{{- /* Sections of qdrouterd.conf that interior and edge routers share: dict "root" $ "mode" "interior" */}}
{{- define "palisade.configuration" -}}
router {
    mode: {{ .mode }}
    id: ${HOSTNAME}
    auditDir: /var/lib/palisade/audit
    auditMaxBytes: {{ int64 .root.Values.audit.maxBytes }}
    messageProgressTimeout: 60
    shutdownTimeout: {{ max 0 (sub (int64 .root.Values.terminationGracePeriodSeconds) 15) }}
}

policy {
    enableVhostPolicy: yes
    policyDir: /etc/qpid-dispatch/policy
    # qdpolicy: ignore[PAL055] qdrouterd 1.20 does not read this file
    onPolicyChange: {{ .root.Values.policy.onPolicyChange }}
}

# Of routers alone: its authority is none of clients.
sslProfile {
    name: inter_router
    caCertFile: /etc/qpid-dispatch/inter-router/ca.crt
    certFile: /etc/qpid-dispatch/inter-router/tls.crt
    privateKeyFile: /etc/qpid-dispatch/inter-router/tls.key
    protocols: TLSv1.2 TLSv1.3
    uidFormat: n
}

sslProfile {
    name: client
    certFile: /etc/qpid-dispatch/client/tls.crt
    privateKeyFile: /etc/qpid-dispatch/client/tls.key
    protocols: TLSv1.2 TLSv1.3
}

# qdstat in the pod: it may look, and change nothing.
listener {
    name: local
    host: 127.0.0.1
    port: 5672
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    policyVhost: chart-local
}

listener {
    name: clients
    host: 0.0.0.0
    port: 5671
    sslProfile: client
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: SCRAM-SHA-256 PLAIN
    initialHandshakeTimeoutSeconds: 10
}
{{- if .root.Values.client.caSecret }}

# Clients with certificates: a listener that trusts an authority demands one of every client.
sslProfile {
    name: client-certificate
    caCertFile: /etc/qpid-dispatch/client-ca/ca.crt
    certFile: /etc/qpid-dispatch/client/tls.crt
    privateKeyFile: /etc/qpid-dispatch/client/tls.key
    protocols: TLSv1.2 TLSv1.3
    uidFormat: n
}

listener {
    name: certificates
    host: 0.0.0.0
    port: 5673
    sslProfile: client-certificate
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
    initialHandshakeTimeoutSeconds: 10
}
{{- end }}

# The console, /healthz for the kubelet, and /metrics for who has a password.
listener {
    name: console
    host: 0.0.0.0
    port: 8443
    http: yes
    sslProfile: client
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
    metricsAuth: basic
    initialHandshakeTimeoutSeconds: 10
}
{{- end }}

{{- /* The pod of a router: dict "root" $ "component" "interior" "values" .Values.interior "certificates" "a Secret" */}}
{{- define "palisade.pod" -}}
metadata:
  labels:
    {{- include "palisade.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  annotations:
    checksum/configuration: {{ include (print .root.Template.BasePath "/configuration.yaml") .root | sha256sum }}
spec:
  serviceAccountName: {{ .root.Release.Name }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
  topologySpreadConstraints:
    {{- $scope := dict "root" .root "component" .component }}
    {{- range .root.Values.topologyKeys }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "palisade.selector" $scope | nindent 10 }}
    {{- end }}
  containers:
    - name: router
      image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      env:
        - {name: QDROUTERD_CONF, value: /etc/qpid-dispatch/router/qdrouterd.conf}
        - {name: APPLICATION_NAME, value: {{ .root.Release.Name | quote }}}
        {{- if eq .component "interior" }}
        - {name: QDROUTERD_AUTO_MESH_DISCOVERY, value: INFER}
        {{- end }}
        - name: POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        - name: HOSTNAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
      ports:
        - {name: amqps, containerPort: 5671}
        {{- if .root.Values.client.caSecret }}
        - {name: certificates, containerPort: 5673}
        {{- end }}
        - {name: console, containerPort: 8443}
        {{- if eq .component "interior" }}
        - {name: inter-router, containerPort: 55671}
        - {name: edge, containerPort: 45672}
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: console, scheme: HTTPS}
        periodSeconds: 2
        failureThreshold: 60
      readinessProbe:
        httpGet: {path: /healthz, port: console, scheme: HTTPS}
        periodSeconds: 5
      livenessProbe:
        httpGet: {path: /healthz, port: console, scheme: HTTPS}
        periodSeconds: 10
        failureThreshold: 6
      resources: {{- toYaml .values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: configuration, mountPath: /etc/qpid-dispatch/router, readOnly: true}
        - {name: policy, mountPath: /etc/qpid-dispatch/policy, readOnly: true}
        - {name: inter-router, mountPath: /etc/qpid-dispatch/inter-router, readOnly: true}
        - {name: client, mountPath: /etc/qpid-dispatch/client, readOnly: true}
        {{- if .root.Values.client.caSecret }}
        - {name: client-ca, mountPath: /etc/qpid-dispatch/client-ca, readOnly: true}
        {{- end }}
        - {name: users, mountPath: /etc/qpid-dispatch/sasl-users, readOnly: true}
        - {name: run, mountPath: /run/palisade}
        - {name: audit, mountPath: /var/lib/palisade}
  volumes:
    - name: configuration
      configMap:
        name: {{ .root.Release.Name }}-configuration
        items: [{key: {{ .component }}.conf, path: qdrouterd.conf}]
    - name: policy
      configMap: {name: {{ .root.Release.Name }}-policy}
    - name: inter-router
      secret: {secretName: {{ .certificates }}, defaultMode: 0440}
    - name: client
      secret: {secretName: {{ include "palisade.clientSecret" .root }}, defaultMode: 0440}
    {{- with .root.Values.client.caSecret }}
    - name: client-ca
      secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}
    {{- end }}
    - name: users
      secret: {secretName: {{ include "palisade.usersSecret" .root }}, defaultMode: 0440}
    - name: run
      emptyDir: {medium: Memory, sizeLimit: 16Mi}
    - name: audit
      emptyDir: {sizeLimit: {{ add (int64 .root.Values.audit.maxBytes) 100000000 | quote }}}
{{- end }}
