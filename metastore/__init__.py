"""The store of a cluster's metadata: a small, strongly consistent map with revisions, in a file or in etcd."""
