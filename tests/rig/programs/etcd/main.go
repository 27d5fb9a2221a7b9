// etcd, of the version that Kubernetes itself is tested with: Debian's lacks what the API server's cache needs.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
