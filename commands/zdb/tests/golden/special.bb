
Traversing all blocks to verify nothing leaked ...


	No leaks (block sum matches space maps exactly)

	bp count:                  1009
	ganged count:                 0
	bp logical:            18896384      avg:  18727
	bp physical:            8860672      avg:   8781     compression:   2.13
	bp allocated:          13893632      avg:  13769     compression:   1.36
	bp deduped:                   0    ref>1:      0   deduplication:   1.00
	bp cloned:                    0    count:      0
	Normal class:          12730368     used:  4.74%
	Special class           1200128     used:  1.43%
	Embedded log class              0     used:  -nan%

	additional, non-pointer bps of type 0:        777
	Dittoed blocks on same vdev: 103

Blocks	LSIZE	PSIZE	ASIZE	  avg	 comp	%Total	Type
     -	    -	    -	    -	    -	    -	     -	unallocated
     2	  32K	   8K	  24K	  12K	 4.00	  0.18	object directory
     -	    -	    -	    -	    -	    -	     -	object array
     1	  16K	   4K	  12K	  12K	 4.00	  0.09	packed nvlist
     -	    -	    -	    -	    -	    -	     -	packed nvlist size
     -	    -	    -	    -	    -	    -	     -	bpobj
     -	    -	    -	    -	    -	    -	     -	bpobj header
     -	    -	    -	    -	    -	    -	     -	SPA space map header
     5	 640K	  20K	  60K	  12K	32.00	  0.44	SPA space map
     1	  72K	  72K	 112K	 112K	 1.00	  0.83	ZIL intent log
    44	1.89M	 176K	 372K	8.45K	11.00	  2.74	DMU dnode
     3	  12K	  12K	  28K	9.33K	 1.00	  0.21	DMU objset
     -	    -	    -	    -	    -	    -	     -	DSL directory
     -	    -	    -	    -	    -	    -	     -	DSL directory child map
     -	    -	    -	    -	    -	    -	     -	DSL dataset snap map
     -	    -	    -	    -	    -	    -	     -	DSL props
     -	    -	    -	    -	    -	    -	     -	DSL dataset
     -	    -	    -	    -	    -	    -	     -	ZFS znode
     -	    -	    -	    -	    -	    -	     -	ZFS V0 ACL
   869	14.6M	8.07M	12.3M	14.5K	 1.81	 93.13	ZFS plain file
    21	 213K	  29K	  64K	3.05K	 7.34	  0.47	ZFS directory
     2	   1K	   1K	  16K	   8K	 1.00	  0.12	ZFS master node
     -	    -	    -	    -	    -	    -	     -	ZFS delete queue
     -	    -	    -	    -	    -	    -	     -	zvol object
     -	    -	    -	    -	    -	    -	     -	zvol prop
     -	    -	    -	    -	    -	    -	     -	other uint8[]
     -	    -	    -	    -	    -	    -	     -	other uint64[]
     -	    -	    -	    -	    -	    -	     -	other ZAP
     -	    -	    -	    -	    -	    -	     -	persistent error log
     1	 128K	   4K	  12K	  12K	32.00	  0.09	SPA history
     -	    -	    -	    -	    -	    -	     -	SPA history offsets
     -	    -	    -	    -	    -	    -	     -	Pool properties
     -	    -	    -	    -	    -	    -	     -	DSL permissions
     -	    -	    -	    -	    -	    -	     -	ZFS ACL
     -	    -	    -	    -	    -	    -	     -	ZFS SYSACL
     -	    -	    -	    -	    -	    -	     -	FUID table
     -	    -	    -	    -	    -	    -	     -	FUID table size
     -	    -	    -	    -	    -	    -	     -	DSL dataset next clones
     -	    -	    -	    -	    -	    -	     -	scan work queue
     6	   3K	   1K	  16K	2.67K	 3.00	  0.12	ZFS user/group/project used
     -	    -	    -	    -	    -	    -	     -	ZFS user/group/project quota
     -	    -	    -	    -	    -	    -	     -	snapshot refcount tags
     -	    -	    -	    -	    -	    -	     -	DDT ZAP algorithm
     -	    -	    -	    -	    -	    -	     -	DDT statistics
     2	  10K	9.50K	  24K	  12K	 1.05	  0.18	System attributes
     -	    -	    -	    -	    -	    -	     -	SA master node
     2	   3K	   3K	  16K	   8K	 1.00	  0.12	SA attr registration
     4	  64K	  16K	  32K	   8K	 4.00	  0.24	SA attr layouts
     -	    -	    -	    -	    -	    -	     -	scan translations
     -	    -	    -	    -	    -	    -	     -	deduplicated block
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map hdr
     -	    -	    -	    -	    -	    -	     -	DSL dir clones
     -	    -	    -	    -	    -	    -	     -	bpobj subobj
     -	    -	    -	    -	    -	    -	     -	deferred free
     -	    -	    -	    -	    -	    -	     -	dedup ditto
    20	 332K	35.5K	 144K	7.20K	 9.35	  1.06	other
  1009	18.0M	8.45M	13.2M	13.4K	 2.13	100.00	Total
   114	5.56M	 436K	 948K	8.32K	13.07	  6.99	Metadata Total

Block Size Histogram

  block   psize                lsize                asize
   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.
    512:     14     7K     7K     14     7K     7K      0      0      0
     1K:     11  12.5K  19.5K     11  12.5K  19.5K      0      0      0
     2K:      2  4.50K    24K      2  4.50K    24K      0      0      0
     4K:    102   410K   434K     12  49.5K  73.5K     27   108K   108K
     8K:     10  97.5K   531K      4  33.5K   107K    105   940K  1.02M
    16K:      8   172K   703K     52   844K   951K      8   184K  1.20M
    32K:     35  1.87M  2.55M      1    44K   995K      8   312K  1.51M
    64K:      7   534K  3.08M      7   558K  1.52M     39  3.39M  4.90M
   128K:     43  5.38M  8.45M    129  16.1M  17.6M     45  8.35M  13.2M
   256K:      0      0  8.45M      0      0  17.6M      0      0  13.2M
   512K:      0      0  8.45M      0      0  17.6M      0      0  13.2M
     1M:      0      0  8.45M      0      0  17.6M      0      0  13.2M
     2M:      0      0  8.45M      0      0  17.6M      0      0  13.2M
     4M:      0      0  8.45M      0      0  17.6M      0      0  13.2M
     8M:      0      0  8.45M      0      0  17.6M      0      0  13.2M
    16M:      0      0  8.45M      0      0  17.6M      0      0  13.2M

