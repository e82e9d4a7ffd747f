{{- /*
What the values change. Every value is set as data, never pasted into text: no quote, line break or brace in one can
become a field. Each of these takes a dict, and changes the objects in it.
*/ -}}

{{- /* What page.enabled stands for: a component, and keys of config.web, where config has no others. Takes the root. */ -}}
{{- define "healthd.page" -}}
{{- if .Values.page.enabled -}}
  {{- $_ := set .Values "components" (append .Values.components "page") -}}
  {{- $web := dict "address" ":9402" "access" "token" "hosts" .Values.page.hosts -}}
  {{- $given := get .Values.config "web" | default dict -}}
  {{- if kindIs "map" $given -}}
    {{- include "healthd.merge" (dict "from" $given "into" $web) -}}
    {{- $_ := set .Values "config" (merge (dict "web" $web) .Values.config) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The image as pods name it. Takes the values of `image`, and `version`. */ -}}
{{- define "healthd.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | toString | default .version) -}}
{{- end -}}
{{- end -}}

{{- /* Sets the keys of one map in another, and in the maps below. Takes from, into. */ -}}
{{- define "healthd.merge" -}}
{{- range $key, $value := .from -}}
  {{- if and (kindIs "map" $value) (kindIs "map" (get $.into $key)) -}}
    {{- include "healthd.merge" (dict "from" $value "into" (get $.into $key)) -}}
  {{- else -}}
    {{- $_ := set $.into $key $value -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /*
Makes the ConfigMap. Its name ends in a hash of its content, and is the one that kustomize makes: another configuration
rolls the pods. Old ones are kept, so that pods of before still start while an upgrade is under way or has failed.
Takes root, made.
*/ -}}
{{- define "healthd.config" -}}
{{- $kustomization := .root.Files.Get "kustomization.yaml" | fromYaml -}}
{{- $text := .root.Files.Get "config/healthd.yaml" -}}
{{- if .root.Values.config -}}
  {{- $config := fromYaml $text -}}
  {{- include "healthd.merge" (dict "from" .root.Values.config "into" $config) -}}
  {{- $text = printf "%s\n" (toYaml $config) -}}
{{- end -}}
{{- $data := dict "healthd.yaml" $text -}}
{{- $hash := dict "kind" "ConfigMap" "name" "" "data" $data | toJson | sha256sum | trunc 10 -}}
{{- range $from, $to := dict "0" "g" "1" "h" "3" "k" "a" "m" "e" "t" -}}
  {{- $hash = replace $from $to $hash -}}
{{- end -}}
{{- $object := dict "apiVersion" "v1" "kind" "ConfigMap" "data" $data -}}
{{- $_ := set $object "metadata" (dict "name" (printf "healthd-config-%s" $hash)) -}}
{{- include "healthd.place" (dict "kustomization" $kustomization "object" $object) -}}
{{- $_ := set .made "objects" (append .made.objects $object) -}}
{{- $_ := set .made "config" $object.metadata.name -}}
{{- end -}}

{{- /* Puts image, pull secrets, configuration and node selector into a pod. Takes root, made, pod, values. */ -}}
{{- define "healthd.pod" -}}
{{- range $container := concat (.pod.initContainers | default list) .pod.containers -}}
  {{- $_ := set $container "image" $.made.image -}}
  {{- $_ := set $container "imagePullPolicy" $.root.Values.image.pullPolicy -}}
{{- end -}}
{{- range $volume := .pod.volumes -}}
  {{- if hasKey $volume "configMap" -}}
    {{- $_ := set $volume.configMap "name" $.made.config -}}
  {{- end -}}
{{- end -}}
{{- with .root.Values.image.pullSecrets -}}
  {{- $secrets := list -}}
  {{- range $name := . -}}
    {{- $secrets = append $secrets (dict "name" $name) -}}
  {{- end -}}
  {{- $_ := set $.pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- $container := first .pod.containers -}}
{{- include "healthd.merge" (dict "from" .values.nodeSelector "into" .pod.nodeSelector) -}}
{{- include "healthd.merge" (dict "from" .values.resources "into" $container.resources) -}}
{{- end -}}

{{- /* What the controller gets beside that: places of checkpoints, and secrets of alert services. Takes root, deployment. */ -}}
{{- define "healthd.controller" -}}
{{- $values := .root.Values -}}
{{- $pod := .deployment.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- $_ := set .deployment.spec "replicas" $values.controller.replicas -}}
{{- $_ := set $pod "tolerations" (concat $pod.tolerations $values.controller.tolerations) -}}
{{- $_ := set $container "env" (concat $container.env $values.controller.env) -}}
{{- range $i, $each := $values.checkpoints.volumes -}}
  {{- $name := printf "checkpoints-%d" $i -}}
  {{- $path := $each.mountPath | default (printf "/checkpoints/%s/%s" $each.namespace $each.claim) -}}
  {{- $_ := set $pod "volumes" (append $pod.volumes (merge (dict "name" $name) $each.volume)) -}}
  {{- $mount := dict "name" $name "mountPath" $path "readOnly" true -}}
  {{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
{{- end -}}
{{- with $values.checkpoints.supplementalGroups -}}
  {{- $_ := set $pod.securityContext "supplementalGroups" . -}}
{{- end -}}
{{- with $values.alerts.secretName -}}
  {{- $volume := dict "name" "alerts" "secret" (dict "secretName" . "defaultMode" 288) -}}
  {{- $mount := dict "name" "alerts" "mountPath" "/etc/healthd-alerts" "readOnly" true -}}
  {{- $_ := set $pod "volumes" (append $pod.volumes $volume) -}}
  {{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
  {{- $_ := set $pod.securityContext "fsGroup" 65532 -}}
{{- end -}}
{{- end -}}

{{- /* Opens the way to alert services on other ports, as docs/monitoring/alert-services.md has it. Takes root, made. */ -}}
{{- define "healthd.egress" -}}
{{- with .root.Values.alerts.egress -}}
  {{- $kustomization := $.root.Files.Get "kustomization.yaml" | fromYaml -}}
  {{- $labels := dict "app.kubernetes.io/name" "healthd" "app.kubernetes.io/component" "controller" -}}
  {{- $spec := dict "podSelector" (dict "matchLabels" $labels) "policyTypes" (list "Egress") "egress" . -}}
  {{- $object := dict "apiVersion" "networking.k8s.io/v1" "kind" "NetworkPolicy" "spec" $spec -}}
  {{- $_ := set $object "metadata" (dict "name" "healthd-alerts") -}}
  {{- include "healthd.place" (dict "kustomization" $kustomization "object" $object) -}}
  {{- $_ := set $.made "objects" (append $.made.objects $object) -}}
{{- end -}}
{{- end -}}

{{- /* Says to Helm what an uninstallation leaves: the records of people, and what they are kept in. Takes object. */ -}}
{{- define "healthd.keep" -}}
{{- $isConfig := and (eq .object.kind "ConfigMap") (hasPrefix "healthd-config-" .object.metadata.name) -}}
{{- if or $isConfig (has .object.kind (list "CustomResourceDefinition" "Namespace")) -}}
  {{- $notes := .object.metadata.annotations | default dict -}}
  {{- $_ := set .object.metadata "annotations" (set $notes "helm.sh/resource-policy" "keep") -}}
{{- end -}}
{{- end -}}

{{- /* Changes every object as the values say. Takes root, made. */ -}}
{{- define "healthd.values" -}}
{{- $values := .root.Values -}}
{{- range $object := .made.objects -}}
  {{- include "healthd.keep" (dict "object" $object) -}}
  {{- if eq $object.kind "DaemonSet" -}}
    {{- /* What is beside the agent goes where the agent is, and needs other resources. */ -}}
    {{- $own := ternary $values.agent (pick $values.agent "nodeSelector") (eq $object.metadata.name "healthd-agent") -}}
    {{- include "healthd.pod" (dict "root" $.root "made" $.made "pod" $object.spec.template.spec "values" $own) -}}
  {{- else if eq $object.kind "Deployment" -}}
    {{- $pod := $object.spec.template.spec -}}
    {{- include "healthd.pod" (dict "root" $.root "made" $.made "pod" $pod "values" $values.controller) -}}
    {{- include "healthd.controller" (dict "root" $.root "deployment" $object) -}}
    {{- $_ := set $.made "controller" $object -}}
  {{- else if and (eq $object.kind "ClusterRole") (eq $object.metadata.name "healthd-controller-verifier") -}}
    {{- /* The pods that verify checkpoints run the image of the controller, and no other. */ -}}
    {{- $_ := set (first $object.rules) "resourceNames" (list $.made.image) -}}
  {{- else if and (eq $object.kind "NetworkPolicy") (eq $object.metadata.name "healthd") -}}
    {{- $from := first (first $object.spec.ingress).from -}}
    {{- $_ := set $from.namespaceSelector.matchLabels "kubernetes.io/metadata.name" $values.metrics.namespace -}}
  {{- else if and (eq $object.kind "NetworkPolicy") (eq $object.metadata.name "healthd-page") -}}
    {{- $from := first (first $object.spec.ingress).from -}}
    {{- $_ := set $from.namespaceSelector.matchLabels "kubernetes.io/metadata.name" $values.page.namespace -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The pod of `helm test`: the controller's own, which checks its configuration and reads its records. Takes made. */ -}}
{{- define "healthd.test" -}}
{{- $pod := deepCopy .made.controller.spec.template.spec -}}
{{- $check := pick (first $pod.containers) "image" "imagePullPolicy" "env" "securityContext" "resources" "volumeMounts" -}}
{{- $read := deepCopy $check -}}
{{- $_ := set $check "name" "configuration" -}}
{{- $_ := set $check "command" (list "healthd" "config" "--check" "/etc/healthd/healthd.yaml") -}}
{{- $_ := set $read "name" "records" -}}
{{- $_ := set $read "command" (list "healthd" "recoveries") -}}
{{- $_ := set $pod "initContainers" (list $check) -}}
{{- $_ := set $pod "containers" (list $read) -}}
{{- $_ := set $pod "restartPolicy" "Never" -}}
{{- $pod = omit $pod "topologySpreadConstraints" -}}
{{- $labels := dict "app.kubernetes.io/name" "healthd" "app.kubernetes.io/component" "test" -}}
{{- $notes := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation" -}}
{{- $meta := dict "name" "healthd-test" "namespace" .made.controller.metadata.namespace "labels" $labels "annotations" $notes -}}
{{- toYaml (dict "apiVersion" "v1" "kind" "Pod" "metadata" $meta "spec" $pod) -}}
{{- end -}}
