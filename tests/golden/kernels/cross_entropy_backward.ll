; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %c0, i64 %c1, i64 %x0, ptr noalias %w9) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s2 = alloca float, i64 1
  %s6 = alloca float, i64 1
  %s7 = alloca float, i64 1
  %s39 = alloca float, i64 1
  %s43 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  store float 0x8000000000000000, ptr %s2
  %v3 = load i32, ptr %p0, align 4
  %v4 = trunc i64 %c1 to i32
  %v5 = bitcast i32 %v4 to float
  store float 0xFFF0000000000000, ptr %s6
  store float 0x8000000000000000, ptr %s7
  %v9 = icmp slt i64 0, %n1
  br i1 %v9, label %body8, label %done8
body8:
  %i8 = phi i64 [ 0, %entry ], [ %v35, %done12 ]
  store float 0xFFF0000000000000, ptr %s6
  store float 0x8000000000000000, ptr %s7
  %v10 = add nsw i64 %i8, 256
  %v11 = call i64 @llvm.smin.i64(i64 %v10, i64 %n1)
  %v13 = icmp slt i64 %i8, %v11
  br i1 %v13, label %body12, label %done12
body12:
  %i12 = phi i64 [ %i8, %body8 ], [ %v27, %body12 ]
  %v14 = trunc i64 %x0 to i32
  %v15 = trunc i64 %i12 to i32
  %v16 = add i32 %v14, %v15
  %v17 = icmp eq i32 %v3, %v16
  %v18 = uitofp i1 %v17 to float
  %v19 = getelementptr inbounds float, ptr %p1, i64 %i12
  %v20 = load float, ptr %v19, align 4
  %v21 = fmul float %v5, %v18
  %v22 = fneg float %v21
  %v23 = load float, ptr %s6
  %v24 = call nsz float @llvm.maximum.f32(float %v23, float %v20)
  store float %v24, ptr %s6
  %v25 = load float, ptr %s7
  %v26 = fadd reassoc float %v25, %v22
  store float %v26, ptr %s7
  %v27 = add nuw nsw i64 %i12, 1
  %v28 = icmp slt i64 %v27, %v11
  br i1 %v28, label %body12, label %done12, !llvm.loop !0
done12:
  %v29 = load float, ptr %s1
  %v30 = load float, ptr %s6
  %v31 = call nsz float @llvm.maximum.f32(float %v29, float %v30)
  store float %v31, ptr %s1
  %v32 = load float, ptr %s2
  %v33 = load float, ptr %s7
  %v34 = fadd float %v32, %v33
  store float %v34, ptr %s2
  %v35 = add nuw nsw i64 %i8, 256
  %v36 = icmp slt i64 %v35, %n1
  br i1 %v36, label %body8, label %done8
done8:
  %v37 = load float, ptr %s1
  %v38 = load float, ptr %s2
  store float 0x8000000000000000, ptr %s39
  %v40 = trunc i64 %c0 to i32
  %v41 = bitcast i32 %v40 to float
  %v42 = call float @llvm.maximum.f32(float %v41, float %v37)
  store float 0x8000000000000000, ptr %s43
  %v45 = icmp slt i64 0, %n1
  br i1 %v45, label %body44, label %done44
body44:
  %i44 = phi i64 [ 0, %done8 ], [ %v86, %done48 ]
  store float 0x8000000000000000, ptr %s43
  %v46 = add nsw i64 %i44, 256
  %v47 = call i64 @llvm.smin.i64(i64 %v46, i64 %n1)
  %v49 = icmp slt i64 %i44, %v47
  br i1 %v49, label %body48, label %done48
body48:
  %i48 = phi i64 [ %i44, %body44 ], [ %v81, %body48 ]
  %v50 = getelementptr inbounds float, ptr %p1, i64 %i48
  %v51 = load float, ptr %v50, align 4
  %v52 = fsub float %v51, %v42
  %v53 = call float @llvm.maximum.f32(float %v52, float 0xC05A000000000000)
  %v54 = call float @llvm.minimum.f32(float %v53, float 0x40562E4300000000)
  %v55 = call float @llvm.fma.f32(float %v54, float 0x3FF7154760000000, float 0x4168000000000000)
  %v56 = fsub float %v55, 0x4168000000000000
  %v57 = bitcast float %v55 to i32
  %v58 = call float @llvm.fma.f32(float %v56, float 0xBFE62E4000000000, float %v54)
  %v59 = call float @llvm.fma.f32(float %v56, float 0xBEB7F7D1C0000000, float %v58)
  %v60 = fmul float %v59, %v59
  %v61 = fmul float %v59, %v59
  %v62 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v59, float 0x3FA5558E60000000)
  %v63 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v61, float %v62)
  %v64 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v59, float 0x3FDFFFFFC0000000)
  %v65 = call float @llvm.fma.f32(float %v63, float %v61, float %v64)
  %v66 = call float @llvm.fma.f32(float %v60, float %v65, float %v59)
  %v67 = fadd float %v66, 0x3FF0000000000000
  %v68 = fcmp olt float %v52, 0x0000000000000000
  %v69 = select i1 %v68, i32 1602224128, i32 1056964608
  %v70 = shl i32 %v57, 23
  %v71 = add i32 %v70, %v69
  %v72 = bitcast i32 %v71 to float
  %v73 = select i1 %v68, float 0x3BF0000000000000, float 0x4000000000000000
  %v74 = fmul float %v67, %v72
  %v75 = fmul float %v74, %v73
  %v76 = fcmp ogt float %v52, 0x40562E4300000000
  %v77 = select i1 %v76, float 0x7FF0000000000000, float %v75
  %v78 = getelementptr inbounds float, ptr %w9, i64 %i48
  store float %v77, ptr %v78, align 4
  %v79 = load float, ptr %s43
  %v80 = fadd reassoc float %v79, %v77
  store float %v80, ptr %s43
  %v81 = add nuw nsw i64 %i48, 1
  %v82 = icmp slt i64 %v81, %v47
  br i1 %v82, label %body48, label %done48, !llvm.loop !3
done48:
  %v83 = load float, ptr %s39
  %v84 = load float, ptr %s43
  %v85 = fadd float %v83, %v84
  store float %v85, ptr %s39
  %v86 = add nuw nsw i64 %i44, 256
  %v87 = icmp slt i64 %v86, %n1
  br i1 %v87, label %body44, label %done44
done44:
  %v88 = load float, ptr %s39
  %v89 = fdiv float %v38, %v88
  %v91 = icmp slt i64 0, %n1
  br i1 %v91, label %body90, label %done90
body90:
  %i90 = phi i64 [ 0, %done44 ], [ %v103, %body90 ]
  %v92 = trunc i64 %x0 to i32
  %v93 = trunc i64 %i90 to i32
  %v94 = add i32 %v92, %v93
  %v95 = icmp eq i32 %v3, %v94
  %v96 = uitofp i1 %v95 to float
  %v97 = getelementptr inbounds float, ptr %w9, i64 %i90
  %v98 = load float, ptr %v97, align 4
  %v99 = fmul float %v5, %v96
  %v100 = fmul float %v89, %v98
  %v101 = fadd float %v99, %v100
  %v102 = getelementptr inbounds float, ptr %p2, i64 %i90
  store float %v101, ptr %v102, align 4
  %v103 = add nuw nsw i64 %i90, 1
  %v104 = icmp slt i64 %v103, %n1
  br i1 %v104, label %body90, label %done90, !llvm.loop !6
done90:
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
  %v39 = getelementptr inbounds i64, ptr %args, i64 15
  %v40 = load i64, ptr %v39, align 8
  %s41 = alloca float, i64 %v3, align 64
  %v43 = icmp slt i64 %lo, %hi
  br i1 %v43, label %body42, label %done42
body42:
  %i42 = phi i64 [ %lo, %entry ], [ %v50, %body42 ]
  %v44 = mul nsw i64 %i42, %v12
  %v45 = getelementptr i8, ptr %v10, i64 %v44
  %v46 = mul nsw i64 %i42, %v23
  %v47 = getelementptr i8, ptr %v21, i64 %v46
  %v48 = mul nsw i64 %i42, %v34
  %v49 = getelementptr i8, ptr %v32, i64 %v48
  call void @body(i64 %v3, ptr %v45, ptr %v47, ptr %v49, i64 %v14, i64 %v25, i64 %v36, i64 %v38, i64 %v40, i64 0, ptr %s41)
  %v50 = add nuw nsw i64 %i42, 1
  %v51 = icmp slt i64 %v50, %hi
  br i1 %v51, label %body42, label %done42
done42:
  ret void
}
