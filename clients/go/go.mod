module edgeward/filter

go 1.19
