{{- /*
The manifests of this folder as objects. They are what `kubectl apply -k` reads, and there is no second copy: these
templates do with kustomization.yaml and components/ what kustomize does, as far as these files use it.

A template answers text alone. So each of these takes a dict, and changes the list `objects` in its `made`.
*/ -}}

{{- /* Appends every object of a file. Takes root, made, file. */ -}}
{{- define "healthd.read" -}}
{{- $text := .root.Files.Get .file -}}
{{- if not $text -}}
{{- fail (printf "healthd: the chart has no file %s, or an empty one: take the whole folder deploy/" .file) -}}
{{- end -}}
{{- range $document := regexSplit "(?m)^---$" $text -1 -}}
  {{- $object := fromYaml $document -}}
  {{- if hasKey $object "Error" -}}
    {{- fail (printf "healthd: the file %s of the chart is no YAML: %s" $.file $object.Error) -}}
  {{- end -}}
  {{- if $object -}}
    {{- $_ := set $.made "objects" (append $.made.objects $object) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Makes the objects of kustomization.yaml, with its labels and its namespace. Takes root, made. */ -}}
{{- define "healthd.base" -}}
{{- $kustomization := .root.Files.Get "kustomization.yaml" | fromYaml -}}
{{- range $file := $kustomization.resources -}}
  {{- include "healthd.read" (dict "root" $.root "made" $.made "file" $file) -}}
{{- end -}}
{{- range $object := .made.objects -}}
  {{- include "healthd.place" (dict "kustomization" $kustomization "object" $object) -}}
{{- end -}}
{{- end -}}

{{- /* Gives an object the labels and the namespace of the kustomization. Takes kustomization, object. */ -}}
{{- define "healthd.place" -}}
{{- $meta := .object.metadata -}}
{{- $_ := set $meta "labels" ($meta.labels | default dict) -}}
{{- range .kustomization.labels -}}
  {{- range $key, $value := .pairs -}}
    {{- $_ := set $meta.labels $key $value -}}
  {{- end -}}
{{- end -}}
{{- if not (regexMatch "^(Cluster.*|Namespace|CustomResourceDefinition|PriorityClass|.*AdmissionPolicy(Binding)?)$" .object.kind) -}}
  {{- $_ := set $meta "namespace" .kustomization.namespace -}}
{{- end -}}
{{- end -}}

{{- /* Adds the components that were chosen. Takes root, made. */ -}}
{{- define "healthd.components" -}}
{{- range $name := .root.Values.components | uniq -}}
  {{- $folder := printf "components/%s" $name -}}
  {{- include "healthd.component" (dict "root" $.root "made" $.made "folder" $folder) -}}
{{- end -}}
{{- end -}}

{{- /*
Adds the resources of one component and of those in it, and applies its patches. One that lies above deploy/ is read by way
of a link in deploy/. Takes root, made, folder.
*/ -}}
{{- define "healthd.component" -}}
{{- $file := printf "%s/kustomization.yaml" .folder -}}
{{- $text := .root.Files.Get $file -}}
{{- $component := fromYaml $text -}}
{{- if not $component -}}
  {{- fail (printf "healthd: the chart has no file %s: take the whole folder deploy/, links too" $file) -}}
{{- end -}}
{{- $known := list "apiVersion" "kind" "components" "resources" "images" "patches" "configMapGenerator" "generatorOptions" -}}
{{- range $key := keys $component | sortAlpha -}}
  {{- if not (has $key $known) -}}
    {{- fail (printf "healthd: the chart cannot read %s in %s: use kustomize" $key $file) -}}
  {{- end -}}
{{- end -}}
{{- range $path := $component.components -}}
  {{- include "healthd.component" (dict "root" $.root "made" $.made "folder" (base $path)) -}}
{{- end -}}
{{- range $resource := $component.resources -}}
  {{- include "healthd.read" (dict "root" $.root "made" $.made "file" (printf "%s/%s" $.folder $resource)) -}}
{{- end -}}
{{- range $generator := $component.configMapGenerator -}}
  {{- $options := $component.generatorOptions | default dict -}}
  {{- include "healthd.configMap" (dict "root" $.root "made" $.made "folder" $.folder "generator" $generator "options" $options) -}}
{{- end -}}
{{- range $patch := $component.patches -}}
  {{- include "healthd.patch" (dict "made" $.made "patch" $patch "component" $.folder) -}}
{{- end -}}
{{- end -}}

{{- /* Makes a ConfigMap of files, under the name as it is. Takes root, made, folder, generator, options. */ -}}
{{- define "healthd.configMap" -}}
{{- if not .options.disableNameSuffixHash -}}
  {{- fail (printf "healthd: the chart makes no names with a hash, as %s has them: use kustomize" .folder) -}}
{{- end -}}
{{- $data := dict -}}
{{- range $file := .generator.files -}}
  {{- $_ := set $data (base $file) ($.root.Files.Get (printf "%s/%s" $.folder $file)) -}}
{{- end -}}
{{- $meta := merge (pick .generator "name" "namespace") (pick .options "labels" "annotations") -}}
{{- $object := dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" $meta "data" $data -}}
{{- $_ := set .made "objects" (append .made.objects (deepCopy $object)) -}}
{{- end -}}

{{- /* Applies one patch to the objects of its target, or deletes these. Takes made, patch, component. */ -}}
{{- define "healthd.patch" -}}
{{- $kept := list -}}
{{- $kinds := printf "^(%s)$" (.patch.target.kind | default ".*") -}}
{{- $names := printf "^(%s)$" (.patch.target.name | default ".*") -}}
{{- $operations := list -}}
{{- if hasPrefix "-" (trim .patch.patch) -}}
  {{- $operations = fromYamlArray .patch.patch -}}
{{- else if ne (get (fromYaml .patch.patch) "$patch") "delete" -}}
  {{- fail (printf "healthd: the chart cannot apply a patch of %s: use kustomize" .component) -}}
{{- end -}}
{{- range $object := .made.objects -}}
  {{- $isTarget := and (regexMatch $kinds $object.kind) (regexMatch $names $object.metadata.name) -}}
  {{- if or $operations (not $isTarget) -}}
    {{- $kept = append $kept $object -}}
  {{- end -}}
  {{- if $isTarget -}}
    {{- range $operation := $operations -}}
      {{- include "healthd.operation" (dict "object" $object "operation" $operation "component" $.component) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .made "objects" $kept -}}
{{- end -}}

{{- /* One operation of a JSON patch: sets or removes a key, or appends to a list. Takes object, operation, component. */ -}}
{{- define "healthd.operation" -}}
{{- $at := .object -}}
{{- $above := dict -}}
{{- $key := "" -}}
{{- $path := splitList "/" (trimPrefix "/" .operation.path) -}}
{{- range $part := initial $path -}}
  {{- $above = $at -}}
  {{- $key = $part | replace "~1" "/" | replace "~0" "~" -}}
  {{- if kindIs "slice" $at -}}
    {{- $at = index $at (int $part) -}}
  {{- else -}}
    {{- $at = get $at $key -}}
  {{- end -}}
{{- end -}}
{{- $last := last $path | replace "~1" "/" | replace "~0" "~" -}}
{{- if and (kindIs "map" $at) (has .operation.op (list "add" "replace")) -}}
  {{- $_ := set $at $last .operation.value -}}
{{- else if and (kindIs "map" $at) (eq .operation.op "remove") -}}
  {{- $_ := unset $at $last -}}
{{- else if and (kindIs "slice" $at) (kindIs "map" $above) (eq .operation.op "add") (eq $last "-") -}}
  {{- $_ := set $above $key (append $at .operation.value) -}}
{{- else -}}
  {{- fail (printf "healthd: the chart cannot %s %s, as %s has it: use kustomize" .operation.op .operation.path .component) -}}
{{- end -}}
{{- end -}}
