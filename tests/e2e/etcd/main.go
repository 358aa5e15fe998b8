// An etcd older than the one that the control plane pins: Kubernetes has to do without some of what it may ask of that.
package main

import (
	"go.etcd.io/etcd/etcdmain"
)

func main() {
	etcdmain.Main()
}
