; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %c0, i64 %c1, ptr noalias %w5, ptr noalias %w11) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s11 = alloca float, i64 1
  %s15 = alloca float, i64 1
  %s61 = alloca float, i64 1
  %s64 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  %v3 = icmp slt i64 0, %n1
  br i1 %v3, label %body2, label %done2
body2:
  %i2 = phi i64 [ 0, %entry ], [ %v8, %body2 ]
  %v4 = getelementptr inbounds float, ptr %p0, i64 %i2
  %v5 = load float, ptr %v4, align 4
  %v6 = load float, ptr %s1
  %v7 = call nsz float @llvm.maximum.f32(float %v6, float %v5)
  store float %v7, ptr %s1
  %v8 = add nuw nsw i64 %i2, 1
  %v9 = icmp slt i64 %v8, %n1
  br i1 %v9, label %body2, label %done2, !llvm.loop !0
done2:
  %v10 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s11
  %v12 = trunc i64 %c0 to i32
  %v13 = bitcast i32 %v12 to float
  %v14 = call float @llvm.maximum.f32(float %v13, float %v10)
  store float 0x8000000000000000, ptr %s15
  %v17 = icmp slt i64 0, %n1
  br i1 %v17, label %body16, label %done16
body16:
  %i16 = phi i64 [ 0, %done2 ], [ %v58, %done20 ]
  store float 0x8000000000000000, ptr %s15
  %v18 = add nsw i64 %i16, 256
  %v19 = call i64 @llvm.smin.i64(i64 %v18, i64 %n1)
  %v21 = icmp slt i64 %i16, %v19
  br i1 %v21, label %body20, label %done20
body20:
  %i20 = phi i64 [ %i16, %body16 ], [ %v53, %body20 ]
  %v22 = getelementptr inbounds float, ptr %p0, i64 %i20
  %v23 = load float, ptr %v22, align 4
  %v24 = fsub float %v23, %v14
  %v25 = call float @llvm.maximum.f32(float %v24, float 0xC05A000000000000)
  %v26 = call float @llvm.minimum.f32(float %v25, float 0x40562E4300000000)
  %v27 = call float @llvm.fma.f32(float %v26, float 0x3FF7154760000000, float 0x4168000000000000)
  %v28 = fsub float %v27, 0x4168000000000000
  %v29 = bitcast float %v27 to i32
  %v30 = call float @llvm.fma.f32(float %v28, float 0xBFE62E4000000000, float %v26)
  %v31 = call float @llvm.fma.f32(float %v28, float 0xBEB7F7D1C0000000, float %v30)
  %v32 = fmul float %v31, %v31
  %v33 = fmul float %v31, %v31
  %v34 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v31, float 0x3FA5558E60000000)
  %v35 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v33, float %v34)
  %v36 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v31, float 0x3FDFFFFFC0000000)
  %v37 = call float @llvm.fma.f32(float %v35, float %v33, float %v36)
  %v38 = call float @llvm.fma.f32(float %v32, float %v37, float %v31)
  %v39 = fadd float %v38, 0x3FF0000000000000
  %v40 = fcmp olt float %v24, 0x0000000000000000
  %v41 = select i1 %v40, i32 1602224128, i32 1056964608
  %v42 = shl i32 %v29, 23
  %v43 = add i32 %v42, %v41
  %v44 = bitcast i32 %v43 to float
  %v45 = select i1 %v40, float 0x3BF0000000000000, float 0x4000000000000000
  %v46 = fmul float %v39, %v44
  %v47 = fmul float %v46, %v45
  %v48 = fcmp ogt float %v24, 0x40562E4300000000
  %v49 = select i1 %v48, float 0x7FF0000000000000, float %v47
  %v50 = getelementptr inbounds float, ptr %w5, i64 %i20
  store float %v49, ptr %v50, align 4
  %v51 = load float, ptr %s15
  %v52 = fadd reassoc float %v51, %v49
  store float %v52, ptr %s15
  %v53 = add nuw nsw i64 %i20, 1
  %v54 = icmp slt i64 %v53, %v19
  br i1 %v54, label %body20, label %done20, !llvm.loop !3
done20:
  %v55 = load float, ptr %s11
  %v56 = load float, ptr %s15
  %v57 = fadd float %v55, %v56
  store float %v57, ptr %s11
  %v58 = add nuw nsw i64 %i16, 256
  %v59 = icmp slt i64 %v58, %n1
  br i1 %v59, label %body16, label %done16
done16:
  %v60 = load float, ptr %s11
  store float 0x8000000000000000, ptr %s61
  %v62 = trunc i64 %c1 to i32
  %v63 = bitcast i32 %v62 to float
  store float 0x8000000000000000, ptr %s64
  %v66 = icmp slt i64 0, %n1
  br i1 %v66, label %body65, label %done65
body65:
  %i65 = phi i64 [ 0, %done16 ], [ %v95, %done69 ]
  store float 0x8000000000000000, ptr %s64
  %v67 = add nsw i64 %i65, 256
  %v68 = call i64 @llvm.smin.i64(i64 %v67, i64 %n1)
  %v70 = icmp slt i64 %i65, %v68
  br i1 %v70, label %body69, label %done69
body69:
  %i69 = phi i64 [ %i65, %body65 ], [ %v90, %body69 ]
  %v71 = getelementptr inbounds float, ptr %w5, i64 %i69
  %v72 = load float, ptr %v71, align 4
  %v73 = call float @llvm.fabs.f32(float %v60)
  %v74 = fcmp olt float %v73, 0x3810000000000000
  %v75 = select i1 %v74, float 0x43F0000000000000, float 0x3FF0000000000000
  %v76 = fcmp ogt float %v73, 0x47D0000000000000
  %v77 = select i1 %v76, float 0x3BF0000000000000, float %v75
  %v78 = fmul float %v72, %v77
  %v79 = fmul float %v60, %v77
  %v80 = fdiv float 0x3FF0000000000000, %v79
  %v81 = fmul float %v78, %v80
  %v82 = getelementptr inbounds float, ptr %p1, i64 %i69
  %v83 = load float, ptr %v82, align 4
  %v84 = fmul float %v63, %v83
  %v85 = fmul float %v84, %v81
  %v86 = getelementptr inbounds float, ptr %w11, i64 %i69
  store float %v85, ptr %v86, align 4
  %v87 = fneg float %v85
  %v88 = load float, ptr %s64
  %v89 = fadd reassoc float %v88, %v87
  store float %v89, ptr %s64
  %v90 = add nuw nsw i64 %i69, 1
  %v91 = icmp slt i64 %v90, %v68
  br i1 %v91, label %body69, label %done69, !llvm.loop !6
done69:
  %v92 = load float, ptr %s61
  %v93 = load float, ptr %s64
  %v94 = fadd float %v92, %v93
  store float %v94, ptr %s61
  %v95 = add nuw nsw i64 %i65, 256
  %v96 = icmp slt i64 %v95, %n1
  br i1 %v96, label %body65, label %done65
done65:
  %v97 = load float, ptr %s61
  %v99 = icmp slt i64 0, %n1
  br i1 %v99, label %body98, label %done98
body98:
  %i98 = phi i64 [ 0, %done65 ], [ %v116, %body98 ]
  %v100 = getelementptr inbounds float, ptr %w5, i64 %i98
  %v101 = load float, ptr %v100, align 4
  %v102 = call float @llvm.fabs.f32(float %v60)
  %v103 = fcmp olt float %v102, 0x3810000000000000
  %v104 = select i1 %v103, float 0x43F0000000000000, float 0x3FF0000000000000
  %v105 = fcmp ogt float %v102, 0x47D0000000000000
  %v106 = select i1 %v105, float 0x3BF0000000000000, float %v104
  %v107 = fmul float %v101, %v106
  %v108 = fmul float %v60, %v106
  %v109 = fdiv float 0x3FF0000000000000, %v108
  %v110 = fmul float %v107, %v109
  %v111 = getelementptr inbounds float, ptr %w11, i64 %i98
  %v112 = load float, ptr %v111, align 4
  %v113 = fmul float %v97, %v110
  %v114 = fadd float %v112, %v113
  %v115 = getelementptr inbounds float, ptr %p2, i64 %i98
  store float %v114, ptr %v115, align 4
  %v116 = add nuw nsw i64 %i98, 1
  %v117 = icmp slt i64 %v116, %n1
  br i1 %v117, label %body98, label %done98, !llvm.loop !9
done98:
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
!3 = distinct !{!3, !4, !5}
!4 = !{!"llvm.loop.vectorize.enable", i1 true}
!5 = !{!"llvm.loop.interleave.count", i32 4}
!6 = distinct !{!6, !7, !8}
!7 = !{!"llvm.loop.vectorize.enable", i1 true}
!8 = !{!"llvm.loop.interleave.count", i32 4}
!9 = distinct !{!9, !10, !11}
!10 = !{!"llvm.loop.vectorize.enable", i1 true}
!11 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds ptr, ptr %buffers, i64 %v5
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v7, i64 %v9
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr inbounds ptr, ptr %buffers, i64 %v16
  %v18 = load ptr, ptr %v17, align 8
  %v19 = getelementptr inbounds i64, ptr %args, i64 7
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr i8, ptr %v18, i64 %v20
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr inbounds i64, ptr %args, i64 10
  %v27 = load i64, ptr %v26, align 8
  %v28 = getelementptr inbounds ptr, ptr %buffers, i64 %v27
  %v29 = load ptr, ptr %v28, align 8
  %v30 = getelementptr inbounds i64, ptr %args, i64 11
  %v31 = load i64, ptr %v30, align 8
  %v32 = getelementptr i8, ptr %v29, i64 %v31
  %v33 = getelementptr inbounds i64, ptr %args, i64 12
  %v34 = load i64, ptr %v33, align 8
  %v35 = getelementptr inbounds i64, ptr %args, i64 13
  %v36 = load i64, ptr %v35, align 8
  %v37 = getelementptr inbounds i64, ptr %args, i64 14
  %v38 = load i64, ptr %v37, align 8
  %v39 = getelementptr inbounds i64, ptr %args, i64 15
  %v40 = load i64, ptr %v39, align 8
  %s41 = alloca float, i64 %v3, align 64
  %s42 = alloca float, i64 %v3, align 64
  %v44 = icmp slt i64 %lo, %hi
  br i1 %v44, label %body43, label %done43
body43:
  %i43 = phi i64 [ %lo, %entry ], [ %v51, %body43 ]
  %v45 = mul nsw i64 %i43, %v12
  %v46 = getelementptr i8, ptr %v10, i64 %v45
  %v47 = mul nsw i64 %i43, %v23
  %v48 = getelementptr i8, ptr %v21, i64 %v47
  %v49 = mul nsw i64 %i43, %v34
  %v50 = getelementptr i8, ptr %v32, i64 %v49
  call void @body(i64 %v3, ptr %v46, ptr %v48, ptr %v50, i64 %v14, i64 %v25, i64 %v36, i64 %v38, i64 %v40, ptr %s41, ptr %s42)
  %v51 = add nuw nsw i64 %i43, 1
  %v52 = icmp slt i64 %v51, %hi
  br i1 %v52, label %body43, label %done43
done43:
  ret void
}
