module usher.dev/tests/cluster/controllers

go 1.26.8
