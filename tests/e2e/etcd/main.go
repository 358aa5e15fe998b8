// An etcd older than the one that the control plane pins: Kubernetes has to do without some of what it may ask of that.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
