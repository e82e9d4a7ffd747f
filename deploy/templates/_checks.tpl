{{- /*
What values.schema.json cannot say: each check stops the rendering with what is wrong, where, and what to do. Takes the
root.
*/ -}}
{{- define "healthd.checks" -}}
{{- include "healthd.checkComponents" . -}}
{{- include "healthd.checkVersion" . -}}
{{- include "healthd.checkKeys" . -}}
{{- include "healthd.checkConfig" . -}}
{{- include "healthd.checkVolumes" . -}}
{{- include "healthd.checkPage" . -}}
{{- include "healthd.checkRelease" . -}}
{{- end -}}

{{- /*
One healthd a cluster. Helm refuses a second release by itself, but not with --take-ownership: then two releases have the same
objects, and the end of either takes healthd away from both. A release that is gone owns nothing.
*/ -}}
{{- define "healthd.checkRelease" -}}
{{- $at := (.Files.Get "kustomization.yaml" | fromYaml).namespace -}}
{{- $notes := dig "metadata" "annotations" dict (lookup "apps/v1" "Deployment" $at "healthd-controller" | default dict) -}}
{{- $name := get $notes "meta.helm.sh/release-name" -}}
{{- $namespace := get $notes "meta.helm.sh/release-namespace" -}}
{{- if and $name $namespace (ne (printf "%s/%s" $namespace $name) (printf "%s/%s" .Release.Namespace .Release.Name)) -}}
  {{- range (lookup "v1" "Secret" $namespace "" | default dict).items -}}
    {{- $labels := .metadata.labels | default dict -}}
    {{- if and (eq (get $labels "owner") "helm") (eq (get $labels "name") $name) -}}
      {{- fail (printf "healthd: release %q in namespace %q is installed, and there is one healthd a cluster: upgrade that one, or uninstall it first (its records stay). To go on under this name without a gap, make Helm forget it: kubectl -n %s delete secret -l owner=helm,name=%s" $name $namespace $namespace $name) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* A page that others reach asks who they are: a controller with another word does not start. */ -}}
{{- define "healthd.checkPage" -}}
{{- if and .Values.page.enabled (eq (toString .Values.config.web.access) "local") -}}
  {{- fail "healthd: config.web.access: with page.enabled others reach the page: leave it out, or set token or proxy" -}}
{{- end -}}
{{- end -}}

{{- define "healthd.checkComponents" -}}
{{- $known := list -}}
{{- range $path, $_ := .Files.Glob "components/*/kustomization.yaml" -}}
  {{- $known = append $known (base (dir $path)) -}}
{{- end -}}
{{- range $name := .Values.components -}}
  {{- if not (has $name $known) -}}
    {{- fail (printf "healthd: components: there is no component %q; there are %s" $name (join ", " $known)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "healthd.checkVersion" -}}
{{- $version := .Capabilities.KubeVersion.Version -}}
{{- if and (semverCompare "<1.36.0-0" $version) (not (has "before-1.36" .Values.components)) -}}
  {{- fail (printf "healthd: components: Kubernetes %s has no MutatingAdmissionPolicy (v1): add before-1.36, and read docs/kubernetes/install.md (`helm template` takes the version from --kube-version)" $version) -}}
{{- end -}}
{{- end -}}

{{- /* What a pod would refuse at its start. The values of keys are checked there. */ -}}
{{- define "healthd.checkKeys" -}}
{{- $known := .Files.Get "config/keys.yaml" | fromYaml -}}
{{- range $name, $value := .Values.config -}}
  {{- if and $name (hasKey $known $name) -}}
    {{- if not (kindIs "map" $value) -}}
      {{- fail (printf "healthd: config.%s: it is a section; it has the keys %s" $name (get $known $name | join ", ")) -}}
    {{- end -}}
    {{- range $key, $_ := $value -}}
      {{- if not (has $key (get $known $name)) -}}
        {{- fail (printf "healthd: config.%s.%s: there is no such key; there are %s" $name $key (get $known $name | join ", ")) -}}
      {{- end -}}
    {{- end -}}
  {{- else if not (has $name (get $known "")) -}}
    {{- fail (printf "healthd: config.%s: there is no such key; there are %s" $name (concat (get $known "") (keys $known | sortAlpha | compact) | join ", ")) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Keys that the manifests rely on: another value would part healthd from what is mounted, opened or named there. */ -}}
{{- define "healthd.checkConfig" -}}
{{- $shipped := .Files.Get "config/healthd.yaml" | fromYaml -}}
{{- $kustomization := .Files.Get "kustomization.yaml" | fromYaml -}}
{{- $fixed := pick $shipped "http" "kernel_log" -}}
{{- $_ := set $fixed "quarantine" (dict "namespace" $kustomization.namespace) -}}
{{- $_ := set $fixed "" (pick $shipped "host_root") -}}
{{- range $section, $keys := $fixed -}}
  {{- $given := ternary $.Values.config (get $.Values.config $section) (empty $section) -}}
  {{- range $key, $value := $keys -}}
    {{- $name := printf "%s.%s" $section $key | trimPrefix "." -}}
    {{- if and (kindIs "map" $given) (hasKey (default dict $given) $key) -}}
      {{- if ne (get $given $key | toString) $value -}}
        {{- fail (printf "healthd: config.%s: it is %q, and the manifests rely on %q: leave it out" $name (get $given $key | toString) $value) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "healthd.checkVolumes" -}}
{{- $taken := dict -}}
{{- range $i, $each := .Values.checkpoints.volumes -}}
  {{- $where := printf "checkpoints.volumes[%d]" $i -}}
  {{- $named := and $each.namespace $each.claim -}}
  {{- if or (and $each.mountPath (or $each.namespace $each.claim)) (not (or $each.mountPath $named)) -}}
    {{- fail (printf "healthd: %s: it needs namespace and claim, for pvc://claim/…, or mountPath, for file:///path" $where) -}}
  {{- end -}}
  {{- $path := $each.mountPath | default (printf "/checkpoints/%s/%s" $each.namespace $each.claim) -}}
  {{- if hasKey $taken $path -}}
    {{- fail (printf "healthd: %s: %s is mounted at %s already: name each place once" $where (get $taken $path) $path) -}}
  {{- end -}}
  {{- $_ := set $taken $path $where -}}
{{- end -}}
{{- end -}}
