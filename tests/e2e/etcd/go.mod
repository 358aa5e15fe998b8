// etcd 3.4.15, the oldest that is a Go module: what Kubernetes 1.37 can still be started on.
module kube-muster.io/etcd

go 1.16

require go.etcd.io/etcd v0.5.0-alpha.5.0.20210226220824-aa7126864d82
