
Traversing all blocks to verify nothing leaked ...


	No leaks (block sum matches space maps exactly)

	bp count:                   514
	ganged count:                 0
	bp logical:             7437824      avg:  14470
	bp physical:            1548800      avg:   3013     compression:   4.80
	bp allocated:           2256896      avg:   4390     compression:   3.30
	bp deduped:              630784    ref>1:     34   deduplication:   1.28
	bp cloned:                    0    count:      0
	Normal class:           1650688     used:  1.97%
	Embedded log class              0     used:  -nan%

	additional, non-pointer bps of type 0:        350
	Dittoed blocks on same vdev: 95

Blocks	LSIZE	PSIZE	ASIZE	  avg	 comp	%Total	Type
     -	    -	    -	    -	    -	    -	     -	unallocated
     2	  32K	   8K	  24K	  12K	 4.00	  1.09	object directory
     -	    -	    -	    -	    -	    -	     -	object array
     1	  16K	   4K	  12K	  12K	 4.00	  0.54	packed nvlist
     -	    -	    -	    -	    -	    -	     -	packed nvlist size
     -	    -	    -	    -	    -	    -	     -	bpobj
     -	    -	    -	    -	    -	    -	     -	bpobj header
     -	    -	    -	    -	    -	    -	     -	SPA space map header
     4	 512K	  16K	  48K	  12K	32.00	  2.18	SPA space map
     1	   4K	   4K	   4K	   4K	 1.00	  0.18	ZIL intent log
    38	2.34M	 152K	 328K	8.63K	15.79	 14.88	DMU dnode
     4	  16K	  16K	  36K	   9K	 1.00	  1.63	DMU objset
     -	    -	    -	    -	    -	    -	     -	DSL directory
     -	    -	    -	    -	    -	    -	     -	DSL directory child map
     -	    -	    -	    -	    -	    -	     -	DSL dataset snap map
     -	    -	    -	    -	    -	    -	     -	DSL props
     -	    -	    -	    -	    -	    -	     -	DSL dataset
     -	    -	    -	    -	    -	    -	     -	ZFS znode
     -	    -	    -	    -	    -	    -	     -	ZFS V0 ACL
   346	3.25M	1.13M	1.23M	3.65K	 2.88	 57.35	ZFS plain file
    41	 354K	  42K	  96K	2.34K	 8.42	  4.36	ZFS directory
     3	1.50K	1.50K	  24K	   8K	 1.00	  1.09	ZFS master node
     -	    -	    -	    -	    -	    -	     -	ZFS delete queue
     -	    -	    -	    -	    -	    -	     -	zvol object
     -	    -	    -	    -	    -	    -	     -	zvol prop
     -	    -	    -	    -	    -	    -	     -	other uint8[]
     -	    -	    -	    -	    -	    -	     -	other uint64[]
     -	    -	    -	    -	    -	    -	     -	other ZAP
     -	    -	    -	    -	    -	    -	     -	persistent error log
     1	 128K	   4K	  12K	  12K	32.00	  0.54	SPA history
     -	    -	    -	    -	    -	    -	     -	SPA history offsets
     -	    -	    -	    -	    -	    -	     -	Pool properties
     -	    -	    -	    -	    -	    -	     -	DSL permissions
     -	    -	    -	    -	    -	    -	     -	ZFS ACL
     -	    -	    -	    -	    -	    -	     -	ZFS SYSACL
     -	    -	    -	    -	    -	    -	     -	FUID table
     -	    -	    -	    -	    -	    -	     -	FUID table size
     -	    -	    -	    -	    -	    -	     -	DSL dataset next clones
     -	    -	    -	    -	    -	    -	     -	scan work queue
     9	4.50K	   2K	  32K	3.55K	 2.25	  1.45	ZFS user/group/project used
     -	    -	    -	    -	    -	    -	     -	ZFS user/group/project quota
     -	    -	    -	    -	    -	    -	     -	snapshot refcount tags
     4	 128K	  28K	  84K	  21K	 4.57	  3.81	DDT ZAP algorithm
     2	  32K	   8K	  24K	  12K	 4.00	  1.09	DDT statistics
     4	  20K	  19K	  48K	  12K	 1.05	  2.18	System attributes
     -	    -	    -	    -	    -	    -	     -	SA master node
     3	4.50K	4.50K	  24K	   8K	 1.00	  1.09	SA attr registration
     6	  96K	  24K	  48K	   8K	 4.00	  2.18	SA attr layouts
     -	    -	    -	    -	    -	    -	     -	scan translations
     -	    -	    -	    -	    -	    -	     -	deduplicated block
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map hdr
     -	    -	    -	    -	    -	    -	     -	DSL dir clones
     -	    -	    -	    -	    -	    -	     -	bpobj subobj
     -	    -	    -	    -	    -	    -	     -	deferred free
     -	    -	    -	    -	    -	    -	     -	dedup ditto
    14	 170K	22.5K	  96K	6.86K	 7.56	  4.36	other
   514	7.09M	1.48M	2.15M	4.29K	 4.80	100.00	Total
   127	4.16M	 349K	 876K	6.90K	12.21	 39.75	Metadata Total

Block Size Histogram

  block   psize                lsize                asize
   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.
    512:     22    11K    11K     22    11K    11K      0      0      0
     1K:     14    16K    27K     14    16K    27K      0      0      0
     2K:      2  4.50K  31.5K      2  4.50K  31.5K      0      0      0
     4K:     93   374K   406K     17    70K   102K     39   156K   156K
     8K:     13   119K   524K      8    67K   168K     98   892K  1.02M
    16K:     10   208K   732K     47   768K   936K     16   336K  1.35M
    32K:      4   200K   932K      4   128K  1.04M      5   236K  1.58M
    64K:      4   324K  1.23M      8   648K  1.67M      4   328K  1.90M
   128K:      2   256K  1.48M     42  5.25M  6.92M      2   256K  2.15M
   256K:      0      0  1.48M      0      0  6.92M      0      0  2.15M
   512K:      0      0  1.48M      0      0  6.92M      0      0  2.15M
     1M:      0      0  1.48M      0      0  6.92M      0      0  2.15M
     2M:      0      0  1.48M      0      0  6.92M      0      0  2.15M
     4M:      0      0  1.48M      0      0  6.92M      0      0  2.15M
     8M:      0      0  1.48M      0      0  6.92M      0      0  2.15M
    16M:      0      0  1.48M      0      0  6.92M      0      0  2.15M

