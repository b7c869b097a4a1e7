// Command controlplane is a whole Kubernetes control plane in one binary: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, and KWOK in the kubelet's place. It starts what its name (argv[0]) or its first argument says.
//
// One binary, because compiling dominates: the five share nearly all their packages, and five links of one relink each
// time cost 11 s and 227 MB more. A module of its own, because none of this may enter the product's module. Both pin
// the same k8s.io versions and build flags, so that they share the compiled packages.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJob time zones, as the stock binaries embed them

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's own metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs are what this binary can be. Each one reads os.Args as the stock binary does.
var programs = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kwok":                    runKwok,
	"kwok-stages":             printStages,
}

const usage = `usage: controlplane PROGRAM [flags]

PROGRAM is one of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok,
or kwok-stages (prints the stages that "kwok --config" needs). A symbolic link named
after a program starts that program.
`

func main() {
	run, ok := choose()
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	os.Exit(run())
}

// choose finds the program by argv[0], else by the first argument, which it takes out of os.Args: the programs parse
// os.Args themselves.
func choose() (func() int, bool) {
	if run, ok := programs[filepath.Base(os.Args[0])]; ok {
		return run, true
	}
	if len(os.Args) < 2 {
		return nil, false
	}
	run, ok := programs[os.Args[1]]
	if ok {
		os.Args = os.Args[1:]
	}
	return run, ok
}
