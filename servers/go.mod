module flashdbm/servers

go 1.26.0

replace flashdbm => ../
