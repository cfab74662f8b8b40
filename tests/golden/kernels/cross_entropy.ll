; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %c0, i64 %x0) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s11 = alloca float, i64 1
  %s15 = alloca float, i64 1
  %s60 = alloca float, i64 1
  %s92 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  %v3 = icmp slt i64 0, %n1
  br i1 %v3, label %body2, label %done2
body2:
  %i2 = phi i64 [ 0, %entry ], [ %v8, %body2 ]
  %v4 = getelementptr inbounds float, ptr %p1, i64 %i2
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
  %i16 = phi i64 [ 0, %done2 ], [ %v57, %done20 ]
  store float 0x8000000000000000, ptr %s15
  %v18 = add nsw i64 %i16, 256
  %v19 = call i64 @llvm.smin.i64(i64 %v18, i64 %n1)
  %v21 = icmp slt i64 %i16, %v19
  br i1 %v21, label %body20, label %done20
body20:
  %i20 = phi i64 [ %i16, %body16 ], [ %v52, %body20 ]
  %v22 = getelementptr inbounds float, ptr %p1, i64 %i20
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
  %v50 = load float, ptr %s15
  %v51 = fadd reassoc float %v50, %v49
  store float %v51, ptr %s15
  %v52 = add nuw nsw i64 %i20, 1
  %v53 = icmp slt i64 %v52, %v19
  br i1 %v53, label %body20, label %done20, !llvm.loop !3
done20:
  %v54 = load float, ptr %s11
  %v55 = load float, ptr %s15
  %v56 = fadd float %v54, %v55
  store float %v56, ptr %s11
  %v57 = add nuw nsw i64 %i16, 256
  %v58 = icmp slt i64 %v57, %n1
  br i1 %v58, label %body16, label %done16
done16:
  %v59 = load float, ptr %s11
  store float 0x8000000000000000, ptr %s60
  %v61 = load i32, ptr %p0, align 4
  %v62 = fcmp olt float %v59, 0x3810000000000000
  %v63 = fmul float %v59, 0x4160000000000000
  %v64 = select i1 %v62, float %v63, float %v59
  %v65 = select i1 %v62, float 0xC037000000000000, float 0x0000000000000000
  %v66 = bitcast float %v64 to i32
  %v67 = sub i32 %v66, 1059760811
  %v68 = and i32 %v67, -8388608
  %v69 = sub i32 %v66, %v68
  %v70 = bitcast i32 %v69 to float
  %v71 = sitofp i32 %v68 to float
  %v72 = call float @llvm.fma.f32(float %v71, float 0x3E80000000000000, float %v65)
  %v73 = fsub float %v70, 0x3FF0000000000000
  %v74 = fmul float %v73, %v73
  %v75 = fmul float %v73, %v73
  %v76 = call float @llvm.fma.f32(float 0x3FC2080000000000, float %v73, float 0xBFBF198B20000000)
  %v77 = call float @llvm.fma.f32(float 0xBFC0AE0000000000, float %v75, float %v76)
  %v78 = call float @llvm.fma.f32(float 0x3FC1E57400000000, float %v73, float 0xBFC55B36C0000000)
  %v79 = call float @llvm.fma.f32(float %v77, float %v75, float %v78)
  %v80 = call float @llvm.fma.f32(float 0x3FC99D8B20000000, float %v73, float 0xBFCFFFE020000000)
  %v81 = call float @llvm.fma.f32(float %v79, float %v75, float %v80)
  %v82 = call float @llvm.fma.f32(float 0x3FD5554FA0000000, float %v73, float 0xBFE0000000000000)
  %v83 = call float @llvm.fma.f32(float %v81, float %v75, float %v82)
  %v84 = call float @llvm.fma.f32(float %v74, float %v83, float %v73)
  %v85 = call float @llvm.fma.f32(float %v72, float 0x3FE62E4300000000, float %v84)
  %v86 = fcmp olt float %v59, 0x7FF0000000000000
  %v87 = select i1 %v86, float %v85, float %v59
  %v88 = fcmp oeq float %v59, 0x0000000000000000
  %v89 = select i1 %v88, float 0xFFF0000000000000, float %v87
  %v90 = fcmp olt float %v59, 0x0000000000000000
  %v91 = select i1 %v90, float 0x7FF8000000000000, float %v89
  store float 0x8000000000000000, ptr %s92
  %v94 = icmp slt i64 0, %n1
  br i1 %v94, label %body93, label %done93
body93:
  %i93 = phi i64 [ 0, %done16 ], [ %v116, %done97 ]
  store float 0x8000000000000000, ptr %s92
  %v95 = add nsw i64 %i93, 256
  %v96 = call i64 @llvm.smin.i64(i64 %v95, i64 %n1)
  %v98 = icmp slt i64 %i93, %v96
  br i1 %v98, label %body97, label %done97
body97:
  %i97 = phi i64 [ %i93, %body93 ], [ %v111, %body97 ]
  %v99 = trunc i64 %x0 to i32
  %v100 = trunc i64 %i97 to i32
  %v101 = add i32 %v99, %v100
  %v102 = icmp eq i32 %v61, %v101
  %v103 = uitofp i1 %v102 to float
  %v104 = getelementptr inbounds float, ptr %p1, i64 %i97
  %v105 = load float, ptr %v104, align 4
  %v106 = fsub float %v105, %v14
  %v107 = fsub float %v106, %v91
  %v108 = fmul float %v107, %v103
  %v109 = load float, ptr %s92
  %v110 = fadd reassoc float %v109, %v108
  store float %v110, ptr %s92
  %v111 = add nuw nsw i64 %i97, 1
  %v112 = icmp slt i64 %v111, %v96
  br i1 %v112, label %body97, label %done97, !llvm.loop !6
done97:
  %v113 = load float, ptr %s60
  %v114 = load float, ptr %s92
  %v115 = fadd float %v113, %v114
  store float %v115, ptr %s60
  %v116 = add nuw nsw i64 %i93, 256
  %v117 = icmp slt i64 %v116, %n1
  br i1 %v117, label %body93, label %done93
done93:
  %v118 = load float, ptr %s60
  store float %v118, ptr %p2, align 4
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
  %v40 = icmp slt i64 %lo, %hi
  br i1 %v40, label %body39, label %done39
body39:
  %i39 = phi i64 [ %lo, %entry ], [ %v47, %body39 ]
  %v41 = mul nsw i64 %i39, %v12
  %v42 = getelementptr i8, ptr %v10, i64 %v41
  %v43 = mul nsw i64 %i39, %v23
  %v44 = getelementptr i8, ptr %v21, i64 %v43
  %v45 = mul nsw i64 %i39, %v34
  %v46 = getelementptr i8, ptr %v32, i64 %v45
  call void @body(i64 %v3, ptr %v42, ptr %v44, ptr %v46, i64 %v14, i64 %v25, i64 %v36, i64 %v38, i64 0)
  %v47 = add nuw nsw i64 %i39, 1
  %v48 = icmp slt i64 %v47, %hi
  br i1 %v48, label %body39, label %done39
done39:
  ret void
}

; 2: row
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, i64 %s0_0, i64 %s1_0, i64 %c0) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s2 = alloca float, i64 1
  store float 0x8000000000000000, ptr %s1
  store float 0x8000000000000000, ptr %s2
  %v4 = icmp slt i64 0, %n0
  br i1 %v4, label %body3, label %done3
body3:
  %i3 = phi i64 [ 0, %entry ], [ %v18, %done7 ]
  store float 0x8000000000000000, ptr %s2
  %v5 = add nsw i64 %i3, 256
  %v6 = call i64 @llvm.smin.i64(i64 %v5, i64 %n0)
  %v8 = icmp slt i64 %i3, %v6
  br i1 %v8, label %body7, label %done7
body7:
  %i7 = phi i64 [ %i3, %body3 ], [ %v13, %body7 ]
  %v9 = getelementptr inbounds float, ptr %p0, i64 %i7
  %v10 = load float, ptr %v9, align 4
  %v11 = load float, ptr %s2
  %v12 = fadd reassoc float %v11, %v10
  store float %v12, ptr %s2
  %v13 = add nuw nsw i64 %i7, 1
  %v14 = icmp slt i64 %v13, %v6
  br i1 %v14, label %body7, label %done7, !llvm.loop !0
done7:
  %v15 = load float, ptr %s1
  %v16 = load float, ptr %s2
  %v17 = fadd float %v15, %v16
  store float %v17, ptr %s1
  %v18 = add nuw nsw i64 %i3, 256
  %v19 = icmp slt i64 %v18, %n0
  br i1 %v19, label %body3, label %done3
done3:
  %v20 = load float, ptr %s1
  %v21 = trunc i64 %c0 to i32
  %v22 = bitcast i32 %v21 to float
  %v23 = fdiv float %v20, %v22
  %v24 = fneg float %v23
  store float %v24, ptr %p1, align 4
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds ptr, ptr %buffers, i64 %v3
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr inbounds i64, ptr %args, i64 2
  %v7 = load i64, ptr %v6, align 8
  %v8 = getelementptr i8, ptr %v5, i64 %v7
  %v9 = getelementptr inbounds i64, ptr %args, i64 3
  %v10 = load i64, ptr %v9, align 8
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds ptr, ptr %buffers, i64 %v12
  %v14 = load ptr, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 5
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr i8, ptr %v14, i64 %v16
  %v18 = getelementptr inbounds i64, ptr %args, i64 6
  %v19 = load i64, ptr %v18, align 8
  %v20 = getelementptr inbounds i64, ptr %args, i64 7
  %v21 = load i64, ptr %v20, align 8
  %v23 = icmp slt i64 %lo, %hi
  br i1 %v23, label %body22, label %done22
body22:
  %i22 = phi i64 [ %lo, %entry ], [ %v24, %body22 ]
  call void @body(i64 %v1, ptr %v8, ptr %v17, i64 %v10, i64 %v19, i64 %v21)
  %v24 = add nuw nsw i64 %i22, 1
  %v25 = icmp slt i64 %v24, %hi
  br i1 %v25, label %body22, label %done22
done22:
  ret void
}
