; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_1, i64 %s1_1, i64 %s2_1, i64 %c0, i64 %c1, i64 %x1, ptr noalias %w9) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s2 = alloca float, i64 1
  %s24 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  store float 0x8000000000000000, ptr %s2
  %v3 = load i32, ptr %p0, align 4
  %v4 = trunc i64 %c1 to i32
  %v5 = bitcast i32 %v4 to float
  %v7 = icmp slt i64 0, %n1
  br i1 %v7, label %body6, label %done6
body6:
  %i6 = phi i64 [ 0, %entry ], [ %v20, %body6 ]
  %v8 = add nsw i64 %x1, %i6
  %v9 = trunc i64 %v8 to i32
  %v10 = icmp eq i32 %v3, %v9
  %v11 = uitofp i1 %v10 to float
  %v12 = getelementptr inbounds float, ptr %p1, i64 %i6
  %v13 = load float, ptr %v12, align 4
  %v14 = fmul float %v5, %v11
  %v15 = fneg float %v14
  %v16 = load float, ptr %s1
  %v17 = call float @llvm.maximum.f32(float %v16, float %v13)
  store float %v17, ptr %s1
  %v18 = load float, ptr %s2
  %v19 = fadd reassoc float %v18, %v15
  store float %v19, ptr %s2
  %v20 = add nuw nsw i64 %i6, 1
  %v21 = icmp slt i64 %v20, %n1
  br i1 %v21, label %body6, label %done6, !llvm.loop !0
done6:
  %v22 = load float, ptr %s1
  %v23 = load float, ptr %s2
  store float 0x8000000000000000, ptr %s24
  %v25 = trunc i64 %c0 to i32
  %v26 = bitcast i32 %v25 to float
  %v27 = call float @llvm.maximum.f32(float %v26, float %v22)
  %v29 = icmp slt i64 0, %n1
  br i1 %v29, label %body28, label %done28
body28:
  %i28 = phi i64 [ 0, %done6 ], [ %v61, %body28 ]
  %v30 = getelementptr inbounds float, ptr %p1, i64 %i28
  %v31 = load float, ptr %v30, align 4
  %v32 = fsub float %v31, %v27
  %v33 = call float @llvm.maximum.f32(float %v32, float 0xC05A000000000000)
  %v34 = call float @llvm.minimum.f32(float %v33, float 0x40562E4300000000)
  %v35 = call float @llvm.fma.f32(float %v34, float 0x3FF7154760000000, float 0x4168000000000000)
  %v36 = fsub float %v35, 0x4168000000000000
  %v37 = bitcast float %v35 to i32
  %v38 = call float @llvm.fma.f32(float %v36, float 0xBFE62E4000000000, float %v34)
  %v39 = call float @llvm.fma.f32(float %v36, float 0xBEB7F7D1C0000000, float %v38)
  %v40 = fmul float %v39, %v39
  %v41 = fmul float %v39, %v39
  %v42 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v39, float 0x3FA5558E60000000)
  %v43 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v41, float %v42)
  %v44 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v39, float 0x3FDFFFFFC0000000)
  %v45 = call float @llvm.fma.f32(float %v43, float %v41, float %v44)
  %v46 = call float @llvm.fma.f32(float %v40, float %v45, float %v39)
  %v47 = fadd float %v46, 0x3FF0000000000000
  %v48 = fcmp olt float %v32, 0x0000000000000000
  %v49 = select i1 %v48, i32 1602224128, i32 1056964608
  %v50 = shl i32 %v37, 23
  %v51 = add i32 %v50, %v49
  %v52 = bitcast i32 %v51 to float
  %v53 = select i1 %v48, float 0x3BF0000000000000, float 0x4000000000000000
  %v54 = fmul float %v47, %v52
  %v55 = fmul float %v54, %v53
  %v56 = fcmp ogt float %v32, 0x40562E4300000000
  %v57 = select i1 %v56, float 0x7FF0000000000000, float %v55
  %v58 = getelementptr inbounds float, ptr %w9, i64 %i28
  store float %v57, ptr %v58, align 4
  %v59 = load float, ptr %s24
  %v60 = fadd reassoc float %v59, %v57
  store float %v60, ptr %s24
  %v61 = add nuw nsw i64 %i28, 1
  %v62 = icmp slt i64 %v61, %n1
  br i1 %v62, label %body28, label %done28, !llvm.loop !3
done28:
  %v63 = load float, ptr %s24
  %v64 = fdiv float %v23, %v63
  %v66 = icmp slt i64 0, %n1
  br i1 %v66, label %body65, label %done65
body65:
  %i65 = phi i64 [ 0, %done28 ], [ %v77, %body65 ]
  %v67 = add nsw i64 %x1, %i65
  %v68 = trunc i64 %v67 to i32
  %v69 = icmp eq i32 %v3, %v68
  %v70 = uitofp i1 %v69 to float
  %v71 = getelementptr inbounds float, ptr %w9, i64 %i65
  %v72 = load float, ptr %v71, align 4
  %v73 = fmul float %v5, %v70
  %v74 = fmul float %v64, %v72
  %v75 = fadd float %v73, %v74
  %v76 = getelementptr inbounds float, ptr %p2, i64 %i65
  store float %v75, ptr %v76, align 4
  %v77 = add nuw nsw i64 %i65, 1
  %v78 = icmp slt i64 %v77, %n1
  br i1 %v78, label %body65, label %done65, !llvm.loop !6
done65:
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
