
Traversing all blocks to verify nothing leaked ...


	No leaks (block sum matches space maps exactly)

	bp count:                  1140
	ganged count:                 0
	bp logical:            22305280      avg:  19566
	bp physical:            9510912      avg:   8342     compression:   2.35
	bp allocated:          10068480      avg:   8832     compression:   2.22
	bp deduped:                   0    ref>1:      0   deduplication:   1.00
	bp cloned:                    0    count:      0
	Normal class:          10068480     used: 12.00%
	Embedded log class              0     used:  -nan%
	Dittoed blocks on same vdev: 205

Blocks	LSIZE	PSIZE	ASIZE	  avg	 comp	%Total	Type
     -	    -	    -	    -	    -	    -	     -	unallocated
     2	  32K	   4K	  12K	   6K	 8.00	  0.12	object directory
     1	  512	  512	1.50K	1.50K	 1.00	  0.02	object array
     1	  16K	1.50K	4.50K	4.50K	10.67	  0.05	packed nvlist
     -	    -	    -	    -	    -	    -	     -	packed nvlist size
     2	 144K	   7K	  21K	10.5K	20.57	  0.21	bpobj
     -	    -	    -	    -	    -	    -	     -	bpobj header
     -	    -	    -	    -	    -	    -	     -	SPA space map header
     3	  48K	   8K	  24K	   8K	 6.00	  0.24	SPA space map
     1	   4K	   4K	   4K	   4K	 1.00	  0.04	ZIL intent log
    77	2.95M	 212K	 436K	5.66K	14.26	  4.43	DMU dnode
     4	  16K	   2K	4.50K	1.12K	 8.00	  0.05	DMU objset
     -	    -	    -	    -	    -	    -	     -	DSL directory
     6	   3K	   3K	   9K	1.50K	 1.00	  0.09	DSL directory child map
     4	   2K	   2K	   6K	1.50K	 1.00	  0.06	DSL dataset snap map
     6	   3K	   3K	   9K	1.50K	 1.00	  0.09	DSL props
     -	    -	    -	    -	    -	    -	     -	DSL dataset
     -	    -	    -	    -	    -	    -	     -	ZFS znode
     -	    -	    -	    -	    -	    -	     -	ZFS V0 ACL
   962	17.3M	8.73M	8.85M	9.42K	 1.98	 92.21	ZFS plain file
    27	 419K	48.5K	  97K	3.59K	 8.64	  0.99	ZFS directory
     2	   1K	   1K	   2K	   1K	 1.00	  0.02	ZFS master node
     3	1.50K	1.50K	   3K	   1K	 1.00	  0.03	ZFS delete queue
     -	    -	    -	    -	    -	    -	     -	zvol object
     -	    -	    -	    -	    -	    -	     -	zvol prop
     -	    -	    -	    -	    -	    -	     -	other uint8[]
     -	    -	    -	    -	    -	    -	     -	other uint64[]
     -	    -	    -	    -	    -	    -	     -	other ZAP
     -	    -	    -	    -	    -	    -	     -	persistent error log
     1	 128K	5.50K	16.5K	16.5K	23.27	  0.17	SPA history
     -	    -	    -	    -	    -	    -	     -	SPA history offsets
     1	  512	  512	1.50K	1.50K	 1.00	  0.02	Pool properties
     -	    -	    -	    -	    -	    -	     -	DSL permissions
     -	    -	    -	    -	    -	    -	     -	ZFS ACL
     -	    -	    -	    -	    -	    -	     -	ZFS SYSACL
     -	    -	    -	    -	    -	    -	     -	FUID table
     -	    -	    -	    -	    -	    -	     -	FUID table size
     2	   1K	   1K	   3K	1.50K	 1.00	  0.03	DSL dataset next clones
     -	    -	    -	    -	    -	    -	     -	scan work queue
     6	   3K	   3K	   6K	   1K	 1.00	  0.06	ZFS user/group/project used
     -	    -	    -	    -	    -	    -	     -	ZFS user/group/project quota
     -	    -	    -	    -	    -	    -	     -	snapshot refcount tags
     -	    -	    -	    -	    -	    -	     -	DDT ZAP algorithm
     -	    -	    -	    -	    -	    -	     -	DDT statistics
     2	  10K	  10K	  20K	  10K	 1.00	  0.20	System attributes
     2	   1K	   1K	   2K	   1K	 1.00	  0.02	SA master node
     2	   3K	   1K	   2K	   1K	 3.00	  0.02	SA attr registration
     4	  64K	   7K	  14K	3.50K	 9.14	  0.14	SA attr layouts
     -	    -	    -	    -	    -	    -	     -	scan translations
     -	    -	    -	    -	    -	    -	     -	deduplicated block
     6	   3K	   3K	   9K	1.50K	 1.00	  0.09	DSL deadlist map
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map hdr
     2	   1K	   1K	   3K	1.50K	 1.00	  0.03	DSL dir clones
     -	    -	    -	    -	    -	    -	     -	bpobj subobj
     7	 112K	16.5K	49.5K	7.07K	 6.79	  0.50	deferred free
     -	    -	    -	    -	    -	    -	     -	dedup ditto
     4	   2K	   2K	   6K	1.50K	 1.00	  0.06	other
 1.11K	21.3M	9.07M	9.60M	8.62K	 2.35	100.00	Total
   195	7.34M	 460K	 967K	4.96K	16.35	  9.83	Metadata Total

Block Size Histogram

  block   psize                lsize                asize
   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.
    512:    857   428K   428K    846   423K   423K    786   393K   393K
     1K:     21    24K   452K     10  11.5K   434K     77    95K   488K
     2K:     72   178K   630K      0      0   434K     20    51K   539K
     4K:     72   344K   974K     24   112K   546K     82   409K   948K
     8K:     11   115K  1.06M      5  41.5K   588K     63   594K  1.51M
    16K:     19   430K  1.48M     93  1.47M  2.04M     24   523K  2.02M
    32K:     36  1.48M  2.96M      2    88K  2.13M     36  1.48M  3.50M
    64K:      8   622K  3.57M     17  1.27M  3.40M      8   622K  4.10M
   128K:     44  5.50M  9.07M    143  17.9M  21.3M     44  5.50M  9.60M
   256K:      0      0  9.07M      0      0  21.3M      0      0  9.60M
   512K:      0      0  9.07M      0      0  21.3M      0      0  9.60M
     1M:      0      0  9.07M      0      0  21.3M      0      0  9.60M
     2M:      0      0  9.07M      0      0  21.3M      0      0  9.60M
     4M:      0      0  9.07M      0      0  21.3M      0      0  9.60M
     8M:      0      0  9.07M      0      0  21.3M      0      0  9.60M
    16M:      0      0  9.07M      0      0  21.3M      0      0  9.60M

