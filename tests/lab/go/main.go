// The control plane of the lab: the upstream programs of Kubernetes in one binary, picked by the first argument.
//
// Nothing of them is changed here. They are linked together because they share nearly all of their code: one build and
// one file on disk instead of six.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const usage = `usage: controlplane PROGRAM [arguments]
programs: etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl, and certificates`

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	if len(os.Args) < 2 {
		refuse("no program named")
	}
	os.Args = os.Args[1:] // each of them reads its flags from here
	switch name := os.Args[0]; name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kubectl":
		util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
	case "certificates":
		if err := certificates(os.Args[1:]); err != nil {
			refuse(err.Error())
		}
	default:
		program, known := programs[name]
		if !known {
			refuse(fmt.Sprintf("no program %q in here", name))
		}
		os.Exit(cli.Run(program()))
	}
}

func refuse(why string) {
	fmt.Fprintf(os.Stderr, "controlplane: %s\n%s\n", why, usage)
	os.Exit(2)
}
