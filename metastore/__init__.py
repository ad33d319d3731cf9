"""Where a cluster's metadata is stored: a small, strongly consistent map with revisions, in a file or in etcd."""
